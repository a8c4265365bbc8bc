//! A KMS v2 plugin on a unix socket that can hang, lie and change its key.

use std::{
    collections::HashMap,
    convert::Infallible,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;

#[derive(Clone, PartialEq, Message)]
struct StatusResponse {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    healthz: String,
    #[prost(string, tag = "3")]
    key_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(map = "string, bytes", tag = "3")]
    annotations: HashMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(map = "string, bytes", tag = "4")]
    annotations: HashMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
}

/// Behaviour of the plugin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    Honest,
    /// Answers nothing.
    Hang,
    /// Names another key id in Encrypt than in Status.
    OtherKeyId,
    /// Returns the seed in clear.
    NoEncryption,
    /// Decrypts to something else.
    WrongSeed,
    /// Is not healthy.
    Sick,
}

pub(crate) struct State {
    pub(crate) mode: Mode,
    pub(crate) key_id: String,
    pub(crate) decrypted: usize,
}

/// A running plugin.
pub(crate) struct Plugin {
    pub(crate) socket: PathBuf,
    state: Arc<Mutex<State>>,
}

impl Plugin {
    pub(crate) fn start(folder: &Path) -> Self {
        let socket = folder.join("kms.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let state = Arc::new(Mutex::new(State { mode: Mode::Honest, key_id: "key-1".into(), decrypted: 0 }));
        let shared = state.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let state = shared.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request: http::Request<Incoming>| {
                        let state = state.clone();
                        async move {
                            let path = request.uri().path().to_owned();
                            let body = request.into_body().collect().await.unwrap().to_bytes();
                            Ok::<_, Infallible>(answer(&state, &path, &body).await)
                        }
                    });
                    let io = TokioIo::new(socket);
                    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
                });
            }
        });
        Self { socket, state }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn provider(&self) -> String {
        format!(
            "{{kms: {{apiVersion: v2, name: test, endpoint: 'unix://{}', timeout: 1s}}}}",
            self.socket.display()
        )
    }
}

fn scrambled(bytes: &[u8], key_id: &str) -> Vec<u8> {
    let key = key_id.as_bytes();
    bytes.iter().enumerate().map(|(index, byte)| byte ^ key[index % key.len()] ^ 0x5a).collect()
}

async fn answer(
    state: &Mutex<State>,
    path: &str,
    body: &[u8],
) -> Response<impl hyper::body::Body<Data = Bytes, Error = Infallible> + use<>> {
    let (mode, key_id) = {
        let state = state.lock().unwrap();
        (state.mode, state.key_id.clone())
    };
    if mode == Mode::Hang {
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
    let message = &body[5..];
    let encoded = match path {
        "/v2.KeyManagementService/Status" => {
            let healthz = if mode == Mode::Sick { "not well" } else { "ok" };
            StatusResponse { version: "v2".into(), healthz: healthz.into(), key_id }.encode_to_vec()
        }
        "/v2.KeyManagementService/Encrypt" => {
            let request = EncryptRequest::decode(message).unwrap();
            let ciphertext = match mode {
                Mode::NoEncryption => request.plaintext,
                _ => scrambled(&request.plaintext, &key_id),
            };
            let key_id = if mode == Mode::OtherKeyId { "another".into() } else { key_id };
            let annotations = HashMap::from([("version.encryption.example.org".to_owned(), b"1".to_vec())]);
            EncryptResponse { ciphertext, key_id, annotations }.encode_to_vec()
        }
        "/v2.KeyManagementService/Decrypt" => {
            let request = DecryptRequest::decode(message).unwrap();
            assert_eq!(request.annotations["version.encryption.example.org"], b"1");
            state.lock().unwrap().decrypted += 1;
            let plaintext = match mode {
                Mode::WrongSeed => vec![7; 32],
                _ => scrambled(&request.ciphertext, &request.key_id),
            };
            DecryptResponse { plaintext }.encode_to_vec()
        }
        other => panic!("unexpected {other}"),
    };
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(encoded.len() as u32);
    framed.put_slice(&encoded);
    let trailers = async {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Some(Ok::<_, Infallible>(trailers))
    };
    Response::builder()
        .header("content-type", "application/grpc")
        .body(Full::new(framed.freeze()).with_trailers(trailers))
        .unwrap()
}
