//! Threads for work that no client waits for, such as controllers.
//!
//! A runtime's queue of tasks is first in, first out. A thousand pods that start are thousands of small tasks, each with
//! requests, and a client's request would wait behind all of them. On threads of their own they share the processors with
//! clients' requests by the kernel's rules instead.

use std::{future::Future, sync::LazyLock, thread::available_parallelism};

use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

/// Maximum number of these threads, and of those on which their tasks block.
const THREADS_MAX: usize = 4;
const BLOCKING_THREADS_MAX: usize = 8;

/// The threads, started with the first task. `None` if the kernel refuses them.
static THREADS: LazyLock<Option<Runtime>> = LazyLock::new(|| {
    Builder::new_multi_thread()
        .worker_threads(available_parallelism().map_or(1, usize::from).min(THREADS_MAX))
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("orlop-background")
        .enable_all()
        .build()
        .inspect_err(|error| tracing::warn!(%error, "work in the background has no threads of its own"))
        .ok()
});

/// Spawns a task that no client waits for, with what it spawns itself.
pub(crate) fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match &*THREADS {
        Some(threads) => threads.spawn(task),
        None => tokio::spawn(task),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn task_and_what_it_spawns_have_other_threads() {
        let name = || std::thread::current().name().unwrap_or_default().to_owned();
        let task = spawn(async move { (name(), tokio::spawn(async move { name() }).await.unwrap()) });
        assert_eq!(task.await.unwrap(), ("orlop-background".to_owned(), "orlop-background".to_owned()));
        assert_ne!(name(), "orlop-background");
    }
}
