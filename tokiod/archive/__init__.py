"""Where the files of an archive lie, and which process may write them."""
