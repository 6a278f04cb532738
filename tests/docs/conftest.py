collect_ignore = ["outside_kind"]  # test_adding_a_source.py runs it where it is installed
