//! A server that does nothing but TLS and HTTP/2: what any server in Rust spends on a request, and so what is left to
//! be saved. It is a process of its own, so that its processor time can be told from the load's.

use std::{
    convert::Infallible,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// As long as the ConfigMaps that are got elsewhere, with what the server adds to them.
const ANSWER_BYTES: usize = 1400;
pub(crate) const HOST: &str = "127.0.0.1";

/// The server, running.
pub(crate) struct Bare {
    process: Child,
    pub(crate) kubeconfig: PathBuf,
}

impl Bare {
    /// Starts this program once more, as the server.
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("bare")
            .arg(folder)
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a bare server")?;
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().context("no output")?).read_line(&mut line)?;
        Ok(Self { process, kubeconfig: line.trim_end().into() })
    }

    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns TLS with a certificate of its own for [`HOST`], and the certificate.
pub(crate) fn self_signed(
    protocol: &[u8],
) -> anyhow::Result<(TlsAcceptor, rcgen::CertifiedKey<rcgen::KeyPair>)> {
    let made = rcgen::generate_simple_self_signed([HOST.to_owned()])?;
    let (certificate, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key)))?;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), made))
}

/// Is the server: writes a kubeconfig into a folder, says where it is, and answers every request.
pub(crate) async fn serve(folder: &Path) -> anyhow::Result<()> {
    let (acceptor, made) = self_signed(b"h2")?;
    let listener = TcpListener::bind((HOST, 0)).await?;
    let encoded = STANDARD.encode(made.cert.pem());
    let server = format!("https://{}", listener.local_addr()?);
    let key = STANDARD.encode(made.signing_key.serialize_pem());
    let kubeconfig = json!({
        "clusters": [{"name": "bare", "cluster": {"server": server, "certificate-authority-data": encoded}}],
        "users": [{"name": "bare", "user": {"client-certificate-data": encoded, "client-key-data": key}}],
    });
    let path = folder.join("bare.kubeconfig");
    std::fs::write(&path, kubeconfig.to_string())?;
    println!("{}", path.display());

    let answer = Bytes::from(vec![b'x'; ANSWER_BYTES]);
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let (acceptor, answer) = (acceptor.clone(), answer.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(socket).await else { return };
            let service = service_fn(|_| {
                let mut response = http::Response::new(Full::new(answer.clone()));
                let json = http::HeaderValue::from_static("application/json");
                response.headers_mut().insert(http::header::CONTENT_TYPE, json);
                std::future::ready(Ok::<_, Infallible>(response))
            });
            // A client that goes away is no news.
            let _ = http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
