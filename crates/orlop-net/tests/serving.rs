//! Accept loop, TLS and HTTP together.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{convert::Infallible, fs, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use hyper::{Response, service::service_fn};
use orlop_net::{
    ALPN_HTTP, AcceptOptions, ClientAuth, ClientCertificate, ClientVerifier, Connection, ConnectionLimit,
    HttpOptions, Listener, PemSource, ServerTls, TlsOptions, UnixSocketOptions, accept,
    http::serve_connection,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
};
use tokio_rustls::TlsConnector;

const TIMEOUT: Duration = Duration::from_secs(20);

struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Returns a certificate for a host and its key, as PEM.
    fn sign(&self, host: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Serves the name of the client certificate's state until the returned sender is used or dropped.
async fn serve(
    options: AcceptOptions,
    http: HttpOptions,
) -> (SocketAddr, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let loopback = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(&loopback, &UnixSocketOptions::default()).await.unwrap();
    let address = listener.tcp_address().unwrap();
    let (stop, stopped) = oneshot::channel();
    let http = Arc::new(http);
    let handler = move |connection: Connection, watcher| {
        let http = http.clone();
        async move {
            let client = match connection.tls.map(|session| session.client) {
                None => "plain",
                Some(ClientCertificate::Absent) => "absent",
                Some(ClientCertificate::Verified(_)) => "verified",
                Some(ClientCertificate::Presented(presented)) => {
                    match presented.verifier.verify(&presented.chain, UnixTime::now()) {
                        Ok(()) => "verified",
                        Err(_) => "rejected",
                    }
                }
            };
            let service =
                service_fn(move |_| async move { Ok::<_, Infallible>(Response::new(client.to_owned())) });
            serve_connection(connection.stream, &http, service, watcher).await;
        }
    };
    let served = tokio::spawn(accept(listener, options, async { drop(stopped.await) }, handler));
    (address, stop, served)
}

fn files(folder: &Path, ca: &Ca, client_auth: ClientAuth) -> TlsOptions {
    let (certificate, key) = ca.sign("localhost");
    fs::write(folder.join("tls.crt"), certificate).unwrap();
    fs::write(folder.join("tls.key"), key).unwrap();
    TlsOptions {
        certificate: PemSource::File(folder.join("tls.crt")),
        key: PemSource::File(folder.join("tls.key")),
        client_auth,
        alpn: ALPN_HTTP,
    }
}

/// Sends one HTTP/1.1 request over TLS. Returns the body, or an error if the handshake or the request fails.
async fn get(
    address: SocketAddr,
    trusted: &Ca,
    identity: Option<(String, String)>,
) -> Result<String, String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            builder
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                .unwrap()
        }
    };
    let socket = TcpStream::connect(address).await.unwrap();
    let connect = TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), socket);
    let mut stream = connect.await.map_err(|error| error.to_string())?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.map_err(|error| error.to_string())?;
    response.rsplit_once("\r\n\r\n").map(|(_, body)| body.to_owned()).ok_or_else(|| "no response".to_owned())
}

fn with_tls(options: TlsOptions) -> AcceptOptions {
    AcceptOptions { tls: Some(ServerTls::new(options).unwrap()), ..AcceptOptions::default() }
}

#[tokio::test]
async fn client_auth_decides_which_certificates_complete_the_handshake() {
    let (ours, other) = (Ca::new(), Ca::new());
    let folder = tempfile::tempdir().unwrap();
    let ca = || PemSource::Inline(ours.pem.clone());
    for (client_auth, absent, foreign) in [
        (ClientAuth::Optional(ca()), Some("absent"), None),
        (ClientAuth::Required(ca()), None, None),
        (
            ClientAuth::Deferred(vec![Arc::new(ClientVerifier::new(vec![ca()]).unwrap())]),
            Some("absent"),
            Some("rejected"),
        ),
    ] {
        let shown = format!("{client_auth:?}");
        let tls = files(folder.path(), &ours, client_auth);
        let (address, _stop, _served) = serve(with_tls(tls), HttpOptions::default()).await;
        let verified = get(address, &ours, Some(ours.sign("agent"))).await;
        assert_eq!(verified.as_deref(), Ok("verified"), "{shown}");
        assert_eq!(get(address, &ours, None).await.ok().as_deref(), absent, "{shown}");
        assert_eq!(get(address, &ours, Some(other.sign("agent"))).await.ok().as_deref(), foreign, "{shown}");
    }
}

#[test]
fn client_cas_follow_their_files() {
    let (before, after) = (Ca::new(), Ca::new());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clients.crt");
    fs::write(&path, &before.pem).unwrap();
    let verifier = ClientVerifier::new(vec![PemSource::File(path.clone())]).unwrap();
    let verifies = |ca: &Ca| {
        let chain = vec![CertificateDer::from_pem_slice(ca.sign("agent").0.as_bytes()).unwrap()];
        verifier.verify(&chain, UnixTime::now()).is_ok()
    };
    assert!(verifies(&before) && !verifies(&after));
    fs::write(&path, "half a file").unwrap();
    verifier.reload_if_changed();
    assert!(verifies(&before) && verifier.generation() == 0, "a broken file changes nothing");
    fs::write(&path, format!("{}\n{}", before.pem, after.pem)).unwrap();
    verifier.reload_if_changed();
    assert!(verifies(&before) && verifies(&after), "several CAs in a file");
    fs::write(&path, &after.pem).unwrap();
    verifier.reload_if_changed();
    assert!(!verifies(&before) && verifies(&after) && verifier.generation() == 2);
}

#[tokio::test]
async fn changed_certificate_files_are_served_and_broken_ones_are_not() {
    let (before, after) = (Ca::new(), Ca::new());
    let folder = tempfile::tempdir().unwrap();
    let tls = ServerTls::new(files(folder.path(), &before, ClientAuth::Disabled)).unwrap();
    let options = AcceptOptions { tls: Some(tls.clone()), ..AcceptOptions::default() };
    let (address, _stop, _served) = serve(options, HttpOptions::default()).await;
    assert_eq!(get(address, &before, None).await.as_deref(), Ok("absent"));
    fs::write(folder.path().join("tls.crt"), "half a certificate").unwrap();
    tls.reload_if_changed();
    assert_eq!(get(address, &before, None).await.as_deref(), Ok("absent"), "the loaded one stays");
    drop(files(folder.path(), &after, ClientAuth::Disabled));
    tls.reload_if_changed();
    assert_eq!(get(address, &after, None).await.as_deref(), Ok("absent"));
    assert!(get(address, &before, None).await.is_err(), "the new certificate is another CA's");
}

#[tokio::test]
async fn handshake_that_never_ends_is_closed_and_does_not_block_others() {
    let ca = Ca::new();
    let folder = tempfile::tempdir().unwrap();
    let options = AcceptOptions {
        handshake_timeout: Duration::from_millis(200),
        ..with_tls(files(folder.path(), &ca, ClientAuth::Disabled))
    };
    let (address, _stop, _served) = serve(options, HttpOptions::default()).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    assert_eq!(get(address, &ca, None).await.as_deref(), Ok("absent"));
    let read = tokio::time::timeout(TIMEOUT, silent.read(&mut [0])).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn connections_over_the_limit_wait_in_the_accept_queue() {
    let options = AcceptOptions { limit: ConnectionLimit::new(1), ..AcceptOptions::default() };
    let (address, _stop, _served) = serve(options, HttpOptions::default()).await;
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut response = [0; 12];
    let mut first = TcpStream::connect(address).await.unwrap();
    first.write_all(request).await.unwrap();
    first.read_exact(&mut response).await.unwrap();
    let mut second = TcpStream::connect(address).await.unwrap();
    second.write_all(request).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), second.read_exact(&mut response)).await;
    assert!(early.is_err(), "the only place is taken");
    drop(first);
    tokio::time::timeout(TIMEOUT, second.read_exact(&mut response)).await.unwrap().unwrap();
    assert_eq!(&response, b"HTTP/1.1 200");
}

#[tokio::test]
async fn shutdown_closes_idle_connections_and_returns() {
    let (address, stop, served) = serve(AcceptOptions::default(), HttpOptions::default()).await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    idle.read_exact(&mut [0; 12]).await.unwrap();
    stop.send(()).unwrap();
    tokio::time::timeout(TIMEOUT, served).await.unwrap().unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(TIMEOUT, idle.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn headers_that_never_end_are_cut_off() {
    let http = HttpOptions { header_timeout: Duration::from_millis(200), ..HttpOptions::default() };
    let (address, _stop, _served) = serve(AcceptOptions::default(), http).await;
    let mut slow = TcpStream::connect(address).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nhost: local").await.unwrap();
    let mut response = Vec::new();
    let _ = tokio::time::timeout(TIMEOUT, slow.read_to_end(&mut response)).await.unwrap();
    assert!(response.is_empty() || response.starts_with(b"HTTP/1.1 408"), "{response:?}");
}
