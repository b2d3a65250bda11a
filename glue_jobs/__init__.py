"""What runs over everything: thin PySpark scripts around `coldstream.jobs`, for Glue and for a laptop."""
