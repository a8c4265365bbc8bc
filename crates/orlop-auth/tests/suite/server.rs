//! A TLS server that answers as a test tells it: webhooks and issuers that work, lie, hang, cut and redirect.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use orlop_auth::pki::{Authority, Credential};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Json(u16, Value),
    /// Status, headers and body as they are.
    Text(u16, &'static str, String),
    /// Half a response, then the end of the connection.
    Cut,
    /// Nothing, for as long as the client waits.
    Hang,
}

type Script = Box<dyn Fn(&Asked) -> Answer + Send + Sync>;

/// A running server, which ends with its runtime.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) ca: Arc<Authority>,
    asked: Arc<AtomicUsize>,
    script: Arc<Mutex<Script>>,
}

impl Server {
    pub(crate) async fn start(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let ca = Arc::new(Authority::generate().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            asked: Arc::default(),
            script: Arc::new(Mutex::new(Box::new(script))),
            ca,
        };
        let credential = server.ca.server(&["localhost".to_owned()], &[server.address.ip()]).unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(config(&credential));
        let running = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, server) = (acceptor.clone(), running.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let _ = server.serve(stream).await;
                    }
                });
            }
        });
        server
    }

    /// Replaces the answers.
    pub(crate) fn answer(&self, script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    /// Returns the number of requests so far.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Writes a kubeconfig of the server.
    pub(crate) fn write_kubeconfig(&self, path: &Path, user: &str) {
        let ca = path.with_extension("ca");
        fs::write(&ca, self.ca.certificate()).unwrap();
        let text = format!(
            "apiVersion: v1
kind: Config
current-context: c
clusters:
- {{name: s, cluster: {{server: '{}/review', certificate-authority: '{}'}}}}
contexts:
- {{name: c, context: {{cluster: s, user: u}}}}
users:
- {{name: u, user: {user}}}
",
            self.url(),
            ca.display()
        );
        fs::write(path, text).unwrap();
    }

    async fn serve<S>(&self, stream: S) -> std::io::Result<()>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let mut stream = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let mut headers = BTreeMap::new();
            loop {
                let mut header = String::new();
                stream.read_line(&mut header).await?;
                let Some((name, value)) = header.trim_end().split_once(": ") else { break };
                headers.insert(name.to_lowercase(), value.to_owned());
            }
            let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await?;
            self.asked.fetch_add(1, Ordering::SeqCst);
            let asked = Asked { line, headers, body };
            let answer = (self.script.lock().unwrap())(&asked);
            let (code, more, body) = match answer {
                Answer::Json(code, value) => (code, "content-type: application/json\r\n", value.to_string()),
                Answer::Text(code, headers, body) => (code, headers, body),
                Answer::Cut => {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{").await?;
                    return stream.shutdown().await;
                }
                Answer::Hang => std::future::pending().await,
            };
            let head = format!("HTTP/1.1 {code} X\r\ncontent-length: {}\r\n{more}\r\n", body.len());
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
            stream.flush().await?;
        }
    }
}

fn config(credential: &Credential) -> Arc<rustls::ServerConfig> {
    let chain = CertificateDer::pem_slice_iter(credential.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(credential.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.collect::<Result<_, _>>().unwrap(), key)
        .unwrap();
    Arc::new(config)
}
