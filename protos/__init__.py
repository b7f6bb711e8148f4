"""Wire messages and services: the .proto files and the code generated from them by ``make protos``."""
