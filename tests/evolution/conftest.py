import pytest

pytest.register_assert_rewrite("evolution.evolving_task")
