"""README's way to build the image and to write tables with it works word for word, in the order of its lines."""

import docker
import pytest

from support.containers import IMAGE, Image
from support.jars import REPOSITORY

pytestmark = [*IMAGE]


def test_a_builder_without_buildkit_is_told_so_at_once(image: Image) -> None:
    """This API is that of the builder which docker's client uses where it finds no plugin for BuildKit."""
    with pytest.raises(docker.errors.BuildError, match="the --mount option requires BuildKit") as refusal:
        image.engine.images.build(path=str(REPOSITORY), rm=True, forcerm=True)
    steps = [line["stream"] for line in refusal.value.build_log if "stream" in line]
    assert not [step for step in steps if "RUN" in step][1:], "the first command is refused"
