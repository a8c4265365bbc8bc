//! Accepting connections: who is it, is there room, and TLS where it is asked for.

use std::{sync::Arc, time::Duration};

use rustls::pki_types::CertificateDer;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::{
    authority::Authority,
    caller::Caller,
    channelz::{Channelz, Security},
    connection::{Connection, Io, Peer},
    listen::UnixSocket,
};

/// Connections open at a time, all addresses together.
pub(crate) const CONNECTIONS_MAX: usize = 1024;
/// How long a client may take to agree on TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long to wait when the system has no more files to give.
const PAUSE: Duration = Duration::from_millis(50);

/// Where accepted connections go.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    pub(crate) channelz: Arc<Channelz>,
    pub(crate) places: Arc<Semaphore>,
    pub(crate) accepted: mpsc::Sender<Connection>,
}

impl Acceptor {
    /// A place for one more connection; waiting for it leaves newcomers in the kernel's queue.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().acquire_owned().await.ok()
    }

    pub(crate) async fn unix(self, socket: UnixSocket) {
        let local = socket.listener.local_addr().ok();
        let path = local.as_ref().and_then(|a| a.as_pathname()).map(|p| p.display().to_string());
        while let Some(place) = self.place().await {
            let stream = match socket.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let caller = match stream.peer_cred() {
                Ok(peer) => Caller::Process { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() },
                Err(_) => Caller::Unknown,
            };
            let path = path.as_deref().unwrap_or_default().trim_end_matches(".new");
            let socket = self.channelz.open_unix(path, &caller);
            let peer = Peer { caller, socket };
            if self
                .accepted
                .send(Connection { io: Io::Unix(stream, Authority::default()), peer, _place: place })
                .await
                .is_err()
            {
                return;
            }
        }
    }

    pub(crate) async fn tcp(self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        while let Some(place) = self.place().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            // A client that is slow to agree on TLS must not keep others waiting.
            tokio::spawn(self.clone().greet(stream, tls.clone(), place));
            if self.accepted.is_closed() {
                return;
            }
        }
    }

    async fn greet(self, stream: TcpStream, tls: Option<TlsAcceptor>, place: OwnedSemaphorePermit) {
        let (Ok(address), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
        // Small messages both ways: waiting to fill a packet only adds latency.
        let _ = stream.set_nodelay(true);
        let (io, certificate, security) = match tls {
            None => (Io::Tcp(stream), None, None),
            Some(tls) => match timeout(HANDSHAKE, tls.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let (_, session) = stream.get_ref();
                    let shown = session.peer_certificates().and_then(|chain| chain.first());
                    let security = Security {
                        cipher_suite: session
                            .negotiated_cipher_suite()
                            .and_then(|suite| suite.suite().as_str())
                            .unwrap_or_default()
                            .to_owned(),
                        remote_certificate: shown.map(|der| der.to_vec()).unwrap_or_default(),
                    };
                    let subject = shown.map(subject);
                    (Io::Tls(Box::new(stream)), subject, Some(security))
                }
                Ok(Err(error)) => {
                    tracing::info!(%address, %error, "no TLS");
                    return;
                }
                Err(_) => {
                    tracing::info!(%address, "no TLS in time");
                    return;
                }
            },
        };
        let socket = self.channelz.open_tcp(local, address, security);
        let peer = Peer { caller: Caller::Network { address, certificate }, socket };
        let _ = self.accepted.send(Connection { io, peer, _place: place }).await;
    }
}

/// Whom a certificate speaks of. It has been verified already; this is for logs.
fn subject(certificate: &CertificateDer<'_>) -> Arc<str> {
    match x509_parser::parse_x509_certificate(certificate) {
        Ok((_, parsed)) => parsed.subject().to_string().into(),
        Err(_) => "a certificate without a readable subject".into(),
    }
}
