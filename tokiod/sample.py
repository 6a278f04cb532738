"""The former home of Batch and its types; import them from tokiod.batch."""

from tokiod.batch import Batch, Extent, Form, Rows, even_rows

__all__ = ["Batch", "Extent", "Form", "Rows", "even_rows"]
