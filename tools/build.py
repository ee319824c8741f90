"""`python -m tools.build [SERIES] [--kwok] [--helm] [--e2e] [--if-go]`: builds the tests' programs into the cache."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from tools.controlplane import binaries
from tools.controlplane.building import CannotBuild, build
from tools.controlplane.recipes import E2E, HELM, KWOK, SERIES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("series", nargs="?", default=binaries.series(), choices=list(SERIES))
    parser.add_argument("--kwok", action="store_true", help="KWOK as well")
    parser.add_argument("--helm", action="store_true", help="Helm as well")
    parser.add_argument("--e2e", action="store_true", help="Kubernetes' end-to-end specs as well")
    parser.add_argument("--if-go", action="store_true", help="without Go, say so and succeed")
    options = parser.parse_args()
    if os.environ.get(binaries.ASSETS):
        print(f"Using {binaries.find().origin}: nothing to build")
        return 0
    if options.if_go and shutil.which("go") is None:
        print("No Go here and KUBEBUILDER_ASSETS is not set: the tests against a real control plane will be skipped")
        return 0
    further = [(options.kwok, KWOK), (options.helm, HELM), (options.e2e, E2E)]
    recipes = [*binaries.recipes(options.series), *(recipe for asked, recipe in further if asked)]
    for recipe in recipes:
        print(f"{recipe.name} {recipe.version}: {build(recipe)}", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (CannotBuild, binaries.Missing, ValueError) as error:
        sys.exit(f"{error}")
