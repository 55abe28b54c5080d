//! Programs that move their code to anonymous memory.
