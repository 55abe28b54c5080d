//! What we need of an ELF file: symbols as file offsets, code bytes, the build id.
