//! A thread that starts processes. The thread that starts one waits until the other has executed its program, which takes
//! milliseconds on a busy machine: a thread of the runtime would keep every task behind it waiting.

use std::{
    io,
    process::{Child, Command},
    sync::mpsc,
    thread,
};

use tokio::sync::oneshot;

type Job = (Command, oneshot::Sender<io::Result<Child>>);

/// Starts processes one after the other. They have the scheduling priority of the thread that made this value.
#[derive(Clone, Debug)]
pub(crate) struct Spawner(mpsc::Sender<Job>);

impl Spawner {
    /// Starts the thread, which ends with the last clone.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<Job>();
        thread::Builder::new().name("orlop-spawner".to_owned()).spawn(move || {
            for (mut command, reply) in jobs {
                // Nobody waits for it any more: nothing has been started.
                if !reply.is_closed() {
                    let _ = reply.send(command.spawn());
                }
            }
        })?;
        Ok(Self(sender))
    }

    /// Starts a process.
    pub(crate) async fn spawn(&self, command: Command) -> io::Result<Child> {
        let ended = || io::Error::other("the thread that starts processes has ended");
        let (reply, started) = oneshot::channel();
        self.0.send((command, reply)).map_err(|_| ended())?;
        started.await.map_err(|_| ended())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn process_is_started_or_the_reason_told() {
        let spawner = Spawner::start().unwrap();
        let mut child = spawner.spawn(Command::new("true")).await.unwrap();
        assert!(child.wait().unwrap().success());
        let error = spawner.spawn(Command::new("/nonexistent")).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
