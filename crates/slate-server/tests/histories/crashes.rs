//! The rocks store through a server that is killed.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use slate::{
    Engine,
    store::{RocksOptions, RocksStore},
};
use slate_client::{Client, Options};

use crate::{check, create, workload::History};

/// A server in a process of its own.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: String,
}

impl Process {
    pub(crate) fn start(data: &Path, ready: &Path) -> Self {
        // A killed server leaves its ready file.
        let _ = std::fs::remove_file(ready);
        let child = Command::new(env!("CARGO_BIN_EXE_slate-server"))
            .args(["--addr", "127.0.0.1:0", "--store", "rocks"])
            .arg("--data-dir")
            .arg(data)
            .arg("--ready-file")
            .arg(ready)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("slate-server");
        // Ended with its owner, also if it never becomes ready.
        let mut server = Self { child, address: String::new() };
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            // The address is written with its line's end.
            if let Ok(text) = std::fs::read_to_string(ready)
                && let Some(address) = text.strip_suffix('\n')
            {
                address.clone_into(&mut server.address);
                return server;
            }
            assert!(Instant::now() < deadline, "the server does not become ready");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("kill -9");
        self.child.wait().expect("its end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn history_over_kill_9_cycles_is_linearizable_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, ready) = (folder.path().join("data"), folder.path().join("ready"));
    let history = Arc::new(History::default());
    for cycle in 0..5 {
        let mut server = Process::start(&data, &ready);
        if cycle == 0 {
            create(&Client::new(Options::new(server.address.as_str()))).await;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (recorder, address) = (Arc::clone(&history), server.address.clone());
        let stopped = Arc::clone(&stop);
        let clients =
            tokio::spawn(async move { recorder.record(&address, 100 + cycle, 100_000, &stopped).await });
        // Killed in the middle of whatever the clients are doing.
        let done = || (0..crate::DOCUMENTS).map(|document| history.of(document).len()).sum::<usize>();
        let (before, deadline) = (done(), Instant::now() + Duration::from_secs(60));
        while done() < before + 250 {
            assert!(Instant::now() < deadline, "the clients make no progress");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.kill();
        clients.await.expect("the clients");
        stop.store(true, Ordering::Relaxed);
    }
    check(&history);
    let store = RocksStore::open(&data, &RocksOptions::default()).expect("open");
    let engine = Engine::open(Arc::new(store)).expect("open");
    assert_eq!(engine.validate("slate.c").expect("validate").faults, Vec::<String>::new());
}
