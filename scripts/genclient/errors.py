"""The one error of the client's generation."""


class GenerateError(Exception):
    """The client cannot be generated. The message names the file, schema, field or tool at fault."""
