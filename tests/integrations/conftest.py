"""No hub, no progress bars, no deprecations that diffusers has with numpy; toy profiles have a size of their own."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "integrations":
            item.add_marker(pytest.mark.filterwarnings("ignore:__array:DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:.*was recorded at size 6,:UserWarning"))


@pytest.fixture(autouse=True, scope="session")
def quiet():
    import diffusers
    import transformers

    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()
