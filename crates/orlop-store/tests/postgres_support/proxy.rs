//! A network that loses connections at the worst moment: just before a commit reaches the server, or just
//! after the server has done it. Or it hands a commit over long after everybody has given it up.

use std::sync::{
    Arc, Mutex,
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
    /// The next commit is to be held back.
    hold: AtomicBool,
    held: Mutex<Option<(TcpStream, Vec<u8>)>>,
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

    /// Holds the next commit of one statement back, and ends its client's connection.
    pub(crate) fn hold_next(&self) {
        self.shared.hold.store(true, Ordering::Relaxed);
    }

    /// Hands the server what was held back; its answer, or `None` if there is nothing.
    pub(crate) async fn deliver(&self) -> Option<Vec<u8>> {
        let (mut server, bytes) = self.shared.held.lock().unwrap().take()?;
        server.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(IDLE) {
            assert_ne!(server.read_buf(&mut answer).await.unwrap(), 0, "the server hung up: {answer:?}");
        }
        Some(answer)
    }

    /// Turns new connections away, or takes them again.
    pub(crate) fn close(&self, closed: bool) {
        self.shared.closed.store(closed, Ordering::Relaxed);
    }

    /// Returns the number of commits that never reached the server.
    pub(crate) fn cut_before(&self) -> usize {
        self.shared.before.load(Ordering::Relaxed)
    }

    /// Number of commits whose response was cut off.
    pub(crate) fn cut_after(&self) -> usize {
        self.shared.after.load(Ordering::Relaxed)
    }
}

/// End of a response when the server is idle again.
const IDLE: &[u8] = b"Z\0\0\0\x05I";
/// Lock that a self-committing statement waits for.
const SHARED: &[u8] = b"pg_advisory_xact_lock_shared";

/// The names of statements that commit by themselves.
#[derive(Default)]
struct Committing(Vec<Vec<u8>>);

impl Committing {
    /// Returns true if a client's message runs one of them.
    fn sees(&mut self, sent: &[u8]) -> bool {
        // A kind, a length, and then names that end with a zero byte.
        let mut words = sent.get(5..).unwrap_or_default().split(|byte| *byte == 0);
        match sent.first() {
            Some(b'P') => {
                let (name, sql) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                if sql.windows(SHARED.len()).any(|word| word == SHARED) {
                    self.0.push(name.to_vec());
                }
                false
            }
            Some(b'B') => words.nth(1).is_some_and(|name| self.0.iter().any(|known| known == name)),
            _ => false,
        }
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, shared: Arc<Shared>) {
    let (mut up, mut down) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut committing = Committing::default();
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
        let commits_itself = committing.sees(sent);
        if commits_itself && shared.hold.swap(false, Ordering::Relaxed) {
            *shared.held.lock().unwrap() = Some((server, sent.to_vec()));
            return;
        }
        if (commits_itself || sent.ends_with(b"commit\0")) && shared.wanted.swap(0, Ordering::Relaxed) == 1 {
            let before = shared.before.load(Ordering::Relaxed);
            if before <= shared.after.load(Ordering::Relaxed) {
                shared.before.store(before + 1, Ordering::Relaxed);
                return;
            }
            if server.write_all(sent).await.is_err() {
                return;
            }
            // Nobody gets to see the answer to the commit.
            while let Ok(read @ 1..) = server.read(&mut down).await {
                if down[..read].ends_with(IDLE) {
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
