"""Import contracts that import-linter doesn't have. pyproject.toml names them."""

from graphlib import CycleError, TopologicalSorter

import grimp
from importlinter import Contract, ContractCheck, fields, output
from importlinter.contracts.layers import LayersContract


def _is_within(module, packages):
    return any(module == package or module.startswith(f"{package}.") for package in packages)


class CoveringLayers(LayersContract):
    """Layers that hold every module of the root packages, so that no module escapes the order of the layers."""

    type_name = "covering_layers"

    def check(self, graph, verbose):
        layers = {module.name for layer in self.layers for module in layer.module_tails}
        children = (module for root in self.session_options["root_packages"] for module in graph.find_children(root))
        uncovered = sorted(module for module in children if not _is_within(module, layers))
        check = super().check(graph, verbose)
        check.kept &= not uncovered
        check.metadata["uncovered"] = uncovered
        return check

    def render_broken_contract(self, check):
        for module in check.metadata["uncovered"]:
            output.print_error(f"{module} is in no layer: add it to the contract in pyproject.toml")
        super().render_broken_contract(check)


class AllowedImports(Contract):
    """Packages that import nothing of the root packages but themselves and what is allowed, indirect imports aside.

    The root itself, which has the version alone, may always be imported.
    """

    type_name = "allowed_imports"

    source_modules = fields.ListField(subfield=fields.StringField())
    allowed_modules = fields.ListField(subfield=fields.StringField())

    def check(self, graph, verbose):  # noqa: ARG002 - the signature of all contracts
        roots = self.session_options["root_packages"]
        allowed = {*self.source_modules, *self.allowed_modules}
        ours = [module for module in graph.modules if _is_within(module, roots)]
        sources = [module for module in ours if _is_within(module, self.source_modules)]
        forbidden = sorted(
            (source, imported)
            for source in sources
            for imported in graph.find_modules_directly_imported_by(source)
            if imported in ours and imported not in roots and not _is_within(imported, allowed)
        )
        return ContractCheck(kept=not forbidden, metadata={"forbidden": forbidden})

    def render_broken_contract(self, check):
        for source, imported in check.metadata["forbidden"]:
            output.print_error(f"{source} is not allowed to import {imported}")


class Floors(Contract):
    """A longest chain of imports between packages, of tokiod.cli, collectors.lmt and such. Imports for types alone are left out."""

    type_name = "floors"

    most = fields.IntegerField()

    def check(self, graph, verbose):  # noqa: ARG002 - as above
        roots = self.session_options["root_packages"]
        graph = grimp.build_graph(*roots, exclude_type_checking_imports=True)
        packages = {package: graph.find_descendants(package) | {package} for root in roots for package in graph.find_children(root)}
        package_of = {module: package for package, modules in packages.items() for module in modules}

        imports = {
            package: {package_of.get(found) for module in modules for found in graph.find_modules_directly_imported_by(module)}
            for package, modules in packages.items()
        }
        below = {}
        try:
            for package in TopologicalSorter({package: found - {None, package} for package, found in imports.items()}).static_order():
                below[package] = [package, *max((below.get(one, []) for one in imports[package]), key=len, default=[])]
        except CycleError as error:
            return ContractCheck(kept=False, metadata={"said": f"packages import each other: {' -> '.join(error.args[1])}"})
        chain = max(below.values(), key=len)
        return ContractCheck(kept=len(chain) <= self.most, metadata={"said": f"{len(chain)} floors: {' -> '.join(chain)}"})

    def render_broken_contract(self, check):
        output.print_error(check.metadata["said"])
