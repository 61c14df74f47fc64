from fake_gpu import gpu  # noqa: F401 - a fixture
