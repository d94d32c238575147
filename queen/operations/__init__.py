"""The operations of the HTTP interface, one module each: structs, access level, summary, validation and handler."""
