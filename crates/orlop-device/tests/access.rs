//! Authentication and authorization, over the unix socket and TCP.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use orlop_device::server::{Token, WritePolicy};
use orlop_device_client::{
    Connect,
    api::{ListOptions, gpu_service_client::GpuServiceClient},
};
use orlop_net::{ALPN_HTTP2, ClientAuth, PemSource, TlsOptions};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use support::{Calls, Fixture, Storage, gpu, refused};
use tonic::Code;

#[tokio::test]
async fn user_that_is_not_allowed_reads_but_does_not_write() {
    let f = Fixture::start_with(Storage::Memory, |config| {
        config.policy = WritePolicy { uids: vec![4_000_000_000], ..WritePolicy::default() };
    })
    .await;
    let mut client = f.client.clone();
    refused(client.create(gpu("a")).await, Code::PermissionDenied, "may read but not write");
    refused(client.update(gpu("a")).await, Code::PermissionDenied, "may read but not write");
    refused(client.update_status(gpu("a")).await, Code::PermissionDenied, "may read but not write");
    refused(client.patch("a", support::MERGE_PATCH, "{}", &[]).await, Code::PermissionDenied, "may read");
    refused(client.delete("a").await, Code::PermissionDenied, "may read but not write");
    assert_eq!(client.list(ListOptions::default()).await.unwrap().items, []);
    refused(client.get("a").await, Code::NotFound, "not found");
    client.watch(ListOptions::default()).await.unwrap();
}

#[tokio::test]
async fn caller_is_identified_by_peer_credentials() {
    // The user that runs this test owns its files.
    use std::os::unix::fs::MetadataExt;
    let own = fs::metadata("/proc/self").unwrap();
    for policy in [
        WritePolicy { uids: vec![own.uid()], ..WritePolicy::default() },
        WritePolicy { gids: vec![own.gid()], ..WritePolicy::default() },
    ] {
        let f = Fixture::start_with(Storage::Memory, |config| config.policy = policy).await;
        f.client.clone().create(gpu("a")).await.unwrap();
    }
}

#[tokio::test]
async fn socket_has_the_configured_owner() {
    use std::os::unix::fs::MetadataExt;
    // Only root may change the owner of a file.
    let own = fs::metadata("/proc/self").unwrap();
    let (uid, gid) = if own.uid() == 0 { (4_321, 4_322) } else { (own.uid(), own.gid()) };
    let f = Fixture::start_with(Storage::Memory, |config| config.socket_owner = (Some(uid), Some(gid))).await;
    let socket = fs::metadata(f.socket()).unwrap();
    assert_eq!((socket.uid(), socket.gid()), (uid, gid));
}

#[tokio::test]
async fn calls_over_the_stream_limit_wait() {
    let f = Fixture::start(Storage::Memory).await;
    let mut client = f.client.clone();
    client.create(gpu("a")).await.unwrap();
    let mut watches = Vec::new();
    for _ in 0..100 {
        watches.push(client.watch(ListOptions::default()).await.unwrap());
    }
    let (mut waiting, mut elsewhere) = (client.clone(), GpuServiceClient::new(connect(&f)));
    let mut get = Box::pin(waiting.get("a"));
    // Another connection completes twenty calls meanwhile.
    for _ in 0..20 {
        let answered = futures_util::future::select(&mut get, Box::pin(elsewhere.get("a"))).await;
        assert!(
            matches!(answered, futures_util::future::Either::Right((Ok(_), _))),
            "more than a hundred calls at once"
        );
    }
    watches.pop();
    get.await.unwrap();
}

fn connect(f: &Fixture) -> orlop_device_client::Connection {
    Connect::to(format!("unix://{}", f.socket().display())).open().unwrap()
}

#[tokio::test]
async fn socket_has_the_configured_mode_and_is_removed_on_stop() {
    let f = Fixture::start_with(Storage::Memory, |config| config.socket_mode = 0o640).await;
    let mode = fs::metadata(f.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let path = f.socket();
    // A second server does not replace the socket of a running one.
    let config = orlop_device::Config { socket: Some(path.clone()), ..Default::default() };
    let refused = orlop_device::Server::start(config).await.unwrap_err().to_string();
    assert!(refused.contains("another server listens on it"), "{refused}");
    f.server.stop().await;
    assert!(!path.exists());
    // A stale socket is replaced, any other file is not.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let config = orlop_device::Config { socket: Some(path.clone()), ..Default::default() };
    orlop_device::Server::start(config).await.unwrap().stop().await;
    fs::write(&path, "precious").unwrap();
    let config = orlop_device::Config { socket: Some(path.clone()), ..Default::default() };
    assert!(orlop_device::Server::start(config).await.is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn tcp_without_tls_requires_a_loopback_address() {
    let f = Fixture::start_with(Storage::Memory, |config| {
        config.tcp = Some("127.0.0.1:0".parse().unwrap());
        config.policy.tokens = vec![Token("let-me".into())];
    })
    .await;
    let address = format!("http://{}", f.server.tcp.unwrap());
    let client = |connect: Connect| GpuServiceClient::new(connect.open().unwrap());
    let mut nobody = client(Connect::to(&address));
    assert_eq!(nobody.list(ListOptions::default()).await.unwrap().items, []);
    refused(nobody.create(gpu("a")).await, Code::Unauthenticated, "needs a client certificate or a token");
    let mut wrong = client(Connect::to(&address).token("let-him"));
    refused(wrong.create(gpu("a")).await, Code::Unauthenticated, "not one of this server's");
    client(Connect::to(&address).token("let-me")).create(gpu("a")).await.unwrap();

    let open = orlop_device::Config { tcp: Some("0.0.0.0:0".parse().unwrap()), ..Default::default() };
    let refused = orlop_device::Server::start(open).await.unwrap_err().to_string();
    assert!(refused.contains("needs TLS"), "{refused}");
}

/// A CA, and certificates it signs.
struct Ca {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// Certificate and key, PEM.
    fn sign(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

fn write(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

#[tokio::test]
async fn client_certificate_of_the_client_ca_authorizes_writes() {
    let (servers, clients, strangers) = (Ca::new("servers"), Ca::new("clients"), Ca::new("strangers"));
    let files = tempfile::tempdir().unwrap();
    let (certificate, key) = servers.sign("device server");
    let file = |name: &str, pem: &str| PemSource::File(write(files.path(), name, pem));
    let tls = TlsOptions {
        certificate: file("tls.crt", &certificate),
        key: file("tls.key", &key),
        client_auth: ClientAuth::Optional(file("clients.crt", &clients.certificate.pem())),
        alpn: ALPN_HTTP2,
    };
    let f = Fixture::start_with(Storage::Memory, |config| {
        config.tcp = Some("localhost:0".parse().unwrap());
        config.tls = Some(tls);
    })
    .await;
    let address = format!("https://localhost:{}", f.server.tcp.unwrap().port());
    let connect = || Connect::to(&address).ca(servers.certificate.pem());
    let client = |connect: Connect| GpuServiceClient::new(connect.open().unwrap());

    let mut nobody = client(connect());
    assert_eq!(nobody.list(ListOptions::default()).await.unwrap().items, []);
    refused(nobody.create(gpu("a")).await, Code::Unauthenticated, "needs a client certificate");
    let (certificate, key) = clients.sign("agent");
    client(connect().identity(certificate, key)).create(gpu("a")).await.unwrap();
    let (certificate, key) = strangers.sign("agent");
    let stranger = client(connect().identity(certificate, key)).list(ListOptions::default()).await;
    // The client learns of it only once it has begun to talk, so the code depends on how far it came.
    assert!(
        matches!(stranger.unwrap_err().code(), Code::Unavailable | Code::Unknown),
        "no connection at all"
    );
    // A client that does not know the server's CA does not talk to it either.
    let wary =
        client(Connect::to(&address).ca(strangers.certificate.pem())).list(ListOptions::default()).await;
    assert_eq!(wary.unwrap_err().code(), Code::Unavailable);
}
