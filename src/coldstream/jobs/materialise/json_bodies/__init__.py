"""Bodies of JSON into columns, quickly where that is the truth, and with care elsewhere."""
