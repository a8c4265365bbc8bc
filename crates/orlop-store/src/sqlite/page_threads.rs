//! Threads that read pages of many rows.
//!
//! Their scheduling priority is lower than that of the threads that serve requests: a page takes as much processor time
//! as dozens of small reads, and the kernel lets those run first. Nobody else can: a page is one call into SQLite.

use std::io;

use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinHandle,
};

/// Niceness of the threads: they get a tenth of the processor time of others, and all that is left.
const NICENESS: i32 = 10;

/// A pool of threads, started on first use.
#[derive(Debug)]
pub(super) struct PageThreads {
    handle: Handle,
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
}

impl PageThreads {
    pub(super) fn new(threads: usize) -> io::Result<Self> {
        // A runtime that runs no tasks of its own: only its blocking threads are used.
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(threads)
            .thread_name("orlop-page")
            .on_thread_start(|| {
                if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
                    tracing::debug!(%error, "pages are read at the usual priority");
                }
            })
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Runs `work` on one of the threads.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn_blocking(work)
    }
}

impl Drop for PageThreads {
    fn drop(&mut self) {
        // Dropped where waiting for the threads is not allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
