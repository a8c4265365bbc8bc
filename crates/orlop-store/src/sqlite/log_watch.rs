//! Reports writes to the write-ahead log, of whatever process, so that an idle store does not poll for them.
//!
//! Every commit writes to the log, and so does a process that opens the database, when it registers. The operating system
//! reports that where it can; where it cannot, the log is polled.

use std::{
    fs::File,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use tokio::{
    net::unix::pipe::Receiver,
    time::{Instant, sleep, sleep_until, timeout},
};

/// Shortest time between two looks at the log, and the interval where nothing is reported.
const INTERVAL: Duration = Duration::from_millis(100);
/// Longest time between two looks, for file systems that report nothing although they accept to.
const INTERVAL_MAX: Duration = Duration::from_secs(10);

/// A watch of the log.
#[derive(Debug)]
pub(super) struct LogWatch {
    /// Reports of writes. None where there are too many watches, for example.
    reports: Option<Receiver>,
    /// The last look.
    looked: Mutex<Option<Instant>>,
}

impl LogWatch {
    /// Watches a log. To be called on a runtime.
    pub(super) fn open(log: &Path) -> Self {
        let watched = || -> std::io::Result<_> {
            let reports = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            add_watch(&reports, log, WatchFlags::MODIFY)?;
            // Reports are polled for and read as the bytes of a pipe are.
            Receiver::from_file_unchecked(File::from(reports))
        };
        Self { reports: watched().ok(), looked: Mutex::default() }
    }

    /// Waits until the log may have changed since the last call returned.
    pub(super) async fn changed(&self) {
        match &self.reports {
            // Whether something was reported or not, the log is looked at.
            Some(reports) => drop(timeout(INTERVAL_MAX, self.reported(reports)).await),
            None => sleep(INTERVAL).await,
        }
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Waits for a report, and until the last look is long enough ago: own commits are reported too.
    async fn reported(&self, reports: &Receiver) {
        if reports.readable().await.is_err() {
            return sleep(INTERVAL).await;
        }
        let looked = *self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(looked) = looked {
            sleep_until(looked + INTERVAL).await;
        }
        let mut buffer = [0_u8; 4096];
        while reports.try_read(&mut buffer).is_ok_and(|read| read > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write, time::Duration};

    use tokio::time::timeout;

    use super::{INTERVAL, LogWatch};

    #[tokio::test]
    async fn write_is_reported_and_silence_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = fs::File::create(&path).unwrap();
        let watch = LogWatch::open(&path);
        assert!(watch.reports.is_some());
        assert!(timeout(INTERVAL * 5, watch.changed()).await.is_err(), "nothing was written");
        for _ in 0..3 {
            file.write_all(b"frame").unwrap();
            timeout(Duration::from_secs(60), watch.changed()).await.unwrap();
        }
        assert!(timeout(INTERVAL * 5, watch.changed()).await.is_err(), "all is seen");
    }

    #[tokio::test]
    async fn file_that_cannot_be_watched_is_polled() {
        let watch = LogWatch::open(std::path::Path::new("/nonexistent/log"));
        assert!(watch.reports.is_none());
        timeout(Duration::from_secs(60), watch.changed()).await.unwrap();
    }
}
