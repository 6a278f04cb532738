collect_ignore = ["outside_kind", "outside_sink"]  # test_adding_a_source.py and test_adding_a_sink.py run them where they are installed
