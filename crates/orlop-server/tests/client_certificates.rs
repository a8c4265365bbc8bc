//! Client certificates of other CAs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use orlop_net::{ClientVerifier, PemSource};
use orlop_server::{
    Tokens, User,
    auth::{
        authentication::{FrontProxy, HeaderNames},
        issuer::Issuer,
        pki::{Authority, Credential, server_tls, server_tls_with},
    },
    authentication::AuthenticationOptions,
    chain::Chain,
    cluster::Cluster,
    registry::Kinds,
    serve::serve,
};
use orlop_store::{Config, Endpoint, Store};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Sends a request over TLS with or without a certificate and a token. Returns the code.
async fn ask(
    address: std::net::SocketAddr,
    ca: &Authority,
    client: Option<&Credential>,
    token: Option<&str>,
) -> u16 {
    let token = token.map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
    ask_with(address, ca, client, &token).await
}

/// Sends a request over TLS with more headers. Returns the code.
async fn ask_with(
    address: std::net::SocketAddr,
    ca: &Authority,
    client: Option<&Credential>,
    headers: &str,
) -> u16 {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let certificate = CertificateDer::from_pem_slice(client.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(client.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = connector.connect(name, stream).await.unwrap();
    let request = format!("GET /api/v1/nodes HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    std::str::from_utf8(&answer[9..]).unwrap().parse().unwrap()
}

#[tokio::test]
async fn certificate_of_another_ca_does_not_authenticate_nor_block_a_token() {
    let (ours, other) = (Authority::generate().unwrap(), Authority::generate().unwrap());
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Arc::new(Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap()));
    let chain = Chain::new(cluster, Tokens::new(vec![("secret".to_owned(), User::master("robot"))]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = ours.server(&["localhost".to_owned()], &[]).unwrap();
    let tls = server_tls(&server, ours.certificate()).unwrap();
    tokio::spawn(serve(listener, chain, Some(tls), std::future::pending()));

    let admin = ours.client("admin", "system:masters").unwrap();
    let stranger = other.client("admin", "system:masters").unwrap();
    assert_eq!(ask(address, &ours, Some(&admin), None).await, 200);
    assert_eq!(ask(address, &ours, None, None).await, 403, "anonymous");
    assert_eq!(ask(address, &ours, Some(&stranger), None).await, 401);
    assert_eq!(ask(address, &ours, Some(&stranger), Some("secret")).await, 200);
    assert_eq!(ask(address, &ours, Some(&stranger), Some("wrong")).await, 401);
    // A server certificate of the right CA is not valid for clients.
    assert_eq!(ask(address, &ours, Some(&server), None).await, 401);
}

#[tokio::test]
async fn only_front_proxies_name_users_in_headers() {
    let (users, proxies) = (Authority::generate().unwrap(), Authority::generate().unwrap());
    let verifier = |ca: &Authority| {
        Arc::new(ClientVerifier::new(vec![PemSource::Inline(ca.certificate().to_owned())]).unwrap())
    };
    let verifiers = vec![verifier(&users), verifier(&proxies)];
    let front_proxy =
        FrontProxy::new(verifiers[1].clone(), vec!["proxy".to_owned()], HeaderNames::standard());
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Arc::new(Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap()));
    let options = AuthenticationOptions { front_proxy: Some(front_proxy), ..Tokens::new(Vec::new()).into() };
    let chain = Chain::new(cluster, options);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (certificate, key) = users.server(&["localhost".to_owned()], &[]).unwrap().to_sources();
    let tls = server_tls_with(certificate, key, verifiers).unwrap();
    tokio::spawn(serve(listener, chain, Some(tls), std::future::pending()));

    let admin = "x-remote-user: admin\r\nx-remote-group: system:masters\r\n";
    let proxy = proxies.client("proxy", "").unwrap();
    let other_proxy = proxies.client("other", "").unwrap();
    let ann = users.client("ann", "dev").unwrap();
    assert_eq!(ask_with(address, &users, Some(&proxy), admin).await, 200);
    assert_eq!(ask_with(address, &users, Some(&proxy), "x-remote-user: bob\r\n").await, 403, "bob may not");
    assert_eq!(ask_with(address, &users, Some(&proxy), "").await, 401, "a proxy is no user");
    assert_eq!(ask_with(address, &users, Some(&other_proxy), admin).await, 401, "its name is not allowed");
    assert_eq!(ask_with(address, &users, Some(&ann), admin).await, 403, "a user stays who they are");
    assert_eq!(ask_with(address, &users, None, admin).await, 403, "and so does nobody");
}
