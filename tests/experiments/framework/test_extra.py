"""Commands that need additional libraries."""

import subprocess
import sys

import pytest

from nearsight.common.errors import MissingDependency
from nearsight.experiments.framework.extra import require_experiments


def test_the_error_of_a_missing_library_has_the_command_that_installs_it() -> None:
    require_experiments("demo")
    with pytest.raises(
        MissingDependency, match=r"`nearsight demo` needs not_there; pip install 'nearsight\[exp"
    ):
        require_experiments("demo", ("psutil", "not_there"))


@pytest.mark.system
def test_evaluate_and_modules_for_nodes_of_a_testbed_need_no_extra_library() -> None:
    modules = ("rig.replay", "datasets.evaluation", "links.shaper", "rig.warming")
    imports = "; ".join(f"import nearsight.experiments.{module}" for module in modules)
    code = f"import sys; sys.modules.update(psutil=None, matplotlib=None, pyroute2=None); {imports}"
    subprocess.run([sys.executable, "-c", code], check=True)
