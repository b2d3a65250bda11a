"""The only code that talks: S3, DynamoDB, and a memory that stands in for both. Ports say how."""
