"""What `coldstream doctor` looks at before an agent is started, or when one does not do well."""
