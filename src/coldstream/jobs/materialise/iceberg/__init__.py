"""Tables of Iceberg without a JVM, and the catalogs that know them."""
