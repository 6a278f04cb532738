"""A simulated Elasticsearch that holds collectd's documents."""
