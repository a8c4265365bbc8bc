//! A network that loses connections at the worst moment: just before a commit reaches the server, or just
//! after the server has done it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Stands between the store and the server.
#[derive(Clone)]
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Commits still to be cut.
    wanted: AtomicUsize,
    before: AtomicUsize,
    after: AtomicUsize,
    /// Nobody gets through any more.
    closed: AtomicBool,
}

impl Proxy {
    pub(crate) async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        tokio::spawn({
            let shared = shared.clone();
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    if shared.closed.load(Ordering::Relaxed) {
                        continue;
                    }
                    let server = TcpStream::connect(("127.0.0.1", server_port)).await.unwrap();
                    tokio::spawn(carry(client, server, shared.clone()));
                }
            }
        });
        Self { port, shared }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Cuts the connection around the next commit.
    pub(crate) fn cut_soon(&self) {
        self.shared.wanted.store(1, Ordering::Relaxed);
    }

    /// Turns new connections away, or takes them again.
    pub(crate) fn close(&self, closed: bool) {
        self.shared.closed.store(closed, Ordering::Relaxed);
    }

    /// How many commits never reached the server.
    pub(crate) fn cut_before(&self) -> usize {
        self.shared.before.load(Ordering::Relaxed)
    }

    /// How many commits the server has done without anybody hearing of it.
    pub(crate) fn cut_after(&self) -> usize {
        self.shared.after.load(Ordering::Relaxed)
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, shared: Arc<Shared>) {
    let (mut up, mut down) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let (bytes, upwards) = tokio::select! {
            bytes = client.read(&mut up) => (bytes, true),
            bytes = server.read(&mut down) => (bytes, false),
        };
        let Ok(1..) = bytes else { return };
        let length = bytes.unwrap();
        if !upwards {
            if client.write_all(&down[..length]).await.is_err() {
                return;
            }
            continue;
        }
        let sent = &up[..length];
        let commits = sent.ends_with(b"commit\0");
        if commits && shared.wanted.swap(0, Ordering::Relaxed) == 1 {
            let before = shared.before.load(Ordering::Relaxed);
            if before <= shared.after.load(Ordering::Relaxed) {
                shared.before.store(before + 1, Ordering::Relaxed);
                return;
            }
            if server.write_all(sent).await.is_err() {
                return;
            }
            // The answer to the commit ends with "idle again"; nobody gets to see it.
            while let Ok(read @ 1..) = server.read(&mut down).await {
                if down[..read].ends_with(b"Z\0\0\0\x05I") {
                    shared.after.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
            return;
        }
        if server.write_all(sent).await.is_err() {
            return;
        }
    }
}
