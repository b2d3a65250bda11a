"""What runs over everything: thin PySpark scripts around `coldstream.jobs`."""
