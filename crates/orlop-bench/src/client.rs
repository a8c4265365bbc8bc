//! A bare HTTP/2 client with a kubeconfig: as little as possible between the load and the server.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use orlop_client::Kubeconfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::Value;
use tokio::{io::BufReader, net::TcpStream};

/// Bytes read from a socket at a time.
const READ_BYTES: usize = 64 << 10;

/// A connection, encrypted.
pub(crate) type Stream = tokio_rustls::client::TlsStream<BufReader<TcpStream>>;

/// Address and credentials of a server.
pub(crate) struct Target {
    pub(crate) authority: String,
    host: ServerName<'static>,
    connector: tokio_rustls::TlsConnector,
}

impl Target {
    /// As the first user of a kubeconfig.
    pub(crate) fn read(kubeconfig: &Path) -> anyhow::Result<Self> {
        let document = Kubeconfig::read_from(kubeconfig)?.to_value();
        let field = |pointer: &str| -> anyhow::Result<&str> {
            let value = document.pointer(pointer).and_then(Value::as_str);
            value.with_context(|| format!("{} has no {pointer}", kubeconfig.display()))
        };
        let decoded = |pointer: &str| -> anyhow::Result<Vec<u8>> { Ok(STANDARD.decode(field(pointer)?)?) };
        let server = field("/clusters/0/cluster/server")?;
        let authority = server.strip_prefix("https://").context("the server is not https")?.to_owned();
        let mut roots = rustls::RootCertStore::empty();
        for certificate in
            CertificateDer::pem_slice_iter(&decoded("/clusters/0/cluster/certificate-authority-data")?)
        {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(&decoded("/users/0/user/client-certificate-data")?)?],
                PrivateKeyDer::from_pem_slice(&decoded("/users/0/user/client-key-data")?)?,
            )?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
        let host = ServerName::try_from(host.to_owned())?;
        Ok(Self { authority, host, connector })
    }

    /// Opens a connection.
    pub(crate) async fn open(&self) -> anyhow::Result<Stream> {
        let socket = TcpStream::connect(&self.authority).await?;
        socket.set_nodelay(true)?;
        // TLS by itself reads 4 KiB at a time.
        let socket = BufReader::with_capacity(READ_BYTES, socket);
        Ok(self.connector.connect(self.host.clone(), socket).await?)
    }
}

/// A few connections to one server, used in turn. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    authority: Arc<str>,
    connections: Arc<Vec<SendRequest<Full<Bytes>>>>,
    turn: Arc<AtomicUsize>,
    /// User that is impersonated.
    user: Option<&'static str>,
}

impl Client {
    /// Connects as the first user of a kubeconfig.
    pub(crate) async fn connect(kubeconfig: &Path, connections: usize) -> anyhow::Result<Self> {
        let target = Target::read(kubeconfig)?;
        let mut open = Vec::new();
        for _ in 0..connections {
            let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(4 << 20).initial_connection_window_size(16 << 20);
            let (sender, connection) = builder.handshake(TokioIo::new(target.open().await?)).await?;
            tokio::spawn(connection);
            open.push(sender);
        }
        Ok(Self {
            authority: target.authority.into(),
            connections: Arc::new(open),
            turn: Arc::default(),
            user: None,
        })
    }

    /// Impersonates a user, whose permissions the requests then have.
    pub(crate) fn impersonating(self, user: &'static str) -> Self {
        Self { user: Some(user), ..self }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        body: Bytes,
    ) -> anyhow::Result<http::Response<hyper::body::Incoming>> {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.authority))
            .header("content-type", media_type)
            .header("accept", "application/json");
        let request = match self.user {
            Some(user) => request.header("impersonate-user", user),
            None => request,
        };
        self.send_request(request.body(Full::new(body))?).await
    }

    async fn send_request(
        &self,
        request: http::Request<Full<Bytes>>,
    ) -> anyhow::Result<http::Response<hyper::body::Incoming>> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let mut connection = self.connections[turn].clone();
        connection.ready().await?;
        Ok(connection.send_request(request).await?)
    }

    /// Sends a request and returns the code and body of its response.
    pub(crate) async fn whole(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        body: Bytes,
    ) -> anyhow::Result<(u16, Bytes)> {
        let response = self.send(method, path, media_type, body).await?;
        let code = response.status().as_u16();
        Ok((code, response.into_body().collect().await?.to_bytes()))
    }

    /// GET.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<(u16, Bytes)> {
        self.whole("GET", path, "application/json", Bytes::new()).await
    }

    /// GET as kubectl asks for what may be long: in a form of its own choice, compressed on the way. The length of
    /// what came.
    pub(crate) async fn get_compressed(&self, path: &str, accept: &str) -> anyhow::Result<usize> {
        let request = http::Request::get(format!("https://{}{path}", self.authority))
            .header("accept", accept)
            .header("accept-encoding", "gzip");
        let response = self.send_request(request.body(Full::default())?).await?;
        anyhow::ensure!(response.status() == 200, "{path}: {}", response.status());
        Ok(response.into_body().collect().await?.to_bytes().len())
    }

    /// GET, without reading the body.
    pub(crate) async fn open(&self, path: &str) -> anyhow::Result<http::Response<hyper::body::Incoming>> {
        self.send("GET", path, "application/json", Bytes::new()).await
    }

    /// POST.
    pub(crate) async fn post(&self, path: &str, body: &serde_json::Value) -> anyhow::Result<(u16, Bytes)> {
        self.whole("POST", path, "application/json", body.to_string().into()).await
    }

    /// PUT.
    pub(crate) async fn put(&self, path: &str, body: &serde_json::Value) -> anyhow::Result<(u16, Bytes)> {
        self.whole("PUT", path, "application/json", body.to_string().into()).await
    }

    /// PATCH, as a merge patch.
    pub(crate) async fn patch(&self, path: &str, body: &serde_json::Value) -> anyhow::Result<(u16, Bytes)> {
        self.whole("PATCH", path, "application/merge-patch+json", body.to_string().into()).await
    }

    /// PATCH, as a strategic merge patch.
    pub(crate) async fn strategic_merge_patch(
        &self,
        path: &str,
        body: &serde_json::Value,
    ) -> anyhow::Result<(u16, Bytes)> {
        self.whole("PATCH", path, "application/strategic-merge-patch+json", body.to_string().into()).await
    }

    /// PATCH, as a server-side apply by force.
    pub(crate) async fn apply(&self, path: &str, body: &serde_json::Value) -> anyhow::Result<(u16, Bytes)> {
        let path = format!("{path}?fieldManager=bench&force=true");
        self.whole("PATCH", &path, "application/apply-patch+yaml", body.to_string().into()).await
    }

    /// DELETE.
    pub(crate) async fn delete(&self, path: &str) -> anyhow::Result<(u16, Bytes)> {
        self.whole("DELETE", path, "application/json", Bytes::new()).await
    }

    /// Counts the lines of an answer that goes on, until it ends; and it among those begun once it has.
    pub(crate) async fn count_lines(
        &self,
        path: &str,
        begun: &AtomicUsize,
        seen: &AtomicUsize,
    ) -> anyhow::Result<()> {
        let mut body = self.send("GET", path, "application/json", Bytes::new()).await?.into_body();
        begun.fetch_add(1, Ordering::Relaxed);
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                seen.fetch_add(lines(&data), Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Counts the line ends in some bytes. Sums in bytes first, which vectorizes.
fn lines(bytes: &[u8]) -> usize {
    let ends = |chunk: &[u8]| chunk.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>();
    bytes.chunks(usize::from(u8::MAX)).map(|chunk| usize::from(ends(chunk))).sum()
}
