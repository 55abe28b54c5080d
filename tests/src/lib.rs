//! What the end-to-end tests share: workloads, a daemon per test, clients, statistics.
