//! Sources of readings.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use super::health::Reading;

/// A source of readings. It runs on a thread of its own, since drivers block.
pub trait Source: Send {
    /// Returns a description for the log.
    fn describe(&self) -> String;
    /// Waits for an event, for up to `wait`.
    fn wait(&mut self, wait: Duration);
    /// Reads every GPU. An error means that the state of all is unknown.
    fn read(&mut self) -> Result<Vec<Reading>, String>;
}

/// Creates a source on the thread that it runs on.
pub type MakeSource = Box<dyn FnOnce(&mut dyn FnMut(&mut dyn Source)) -> Result<(), NoDriver> + Send>;

/// NVML is not available on this machine.
#[derive(Debug, PartialEq, Eq)]
pub struct NoDriver(String);

impl NoDriver {
    pub(super) fn new(why: String) -> Self {
        Self(why)
    }
}

impl fmt::Display for NoDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot find GPUs on this machine: {}.\n\
             The agent needs NVIDIA's driver and its library libnvidia-ml.so.1 (in a container: the NVIDIA \
             runtime, or the library and /dev/nvidia* mounted).\n\
             Without a GPU, use --fake N.",
            self.0
        )
    }
}

impl std::error::Error for NoDriver {}

/// Returns the Unix time in seconds.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or_default()
}
