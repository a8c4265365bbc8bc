//! The KMS v2 service over a unix socket.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::uri::PathAndQuery;
use orlop_grpc::{Target, connect_lazy};
use prost::Message;
use tonic::{
    Request, Status,
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use crate::{config::KmsConfig, metrics::Metrics};

/// Bytes of a plugin's answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusResponse {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(string, tag = "2")]
    pub(crate) healthz: String,
    #[prost(string, tag = "3")]
    pub(crate) key_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EncryptRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) plaintext: Bytes,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EncryptResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) ciphertext: Bytes,
    #[prost(string, tag = "2")]
    pub(crate) key_id: String,
    #[prost(map = "string, bytes", tag = "3")]
    pub(crate) annotations: HashMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DecryptRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) ciphertext: Bytes,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
    #[prost(string, tag = "3")]
    pub(crate) key_id: String,
    #[prost(map = "string, bytes", tag = "4")]
    pub(crate) annotations: HashMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DecryptResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) plaintext: Bytes,
}

/// A client of one plugin. It connects when it is first used, and again after a failure.
#[derive(Clone, Debug)]
pub(super) struct Client {
    channel: Channel,
    timeout: Duration,
    /// Name of the plugin.
    name: String,
    metrics: Metrics,
}

impl Client {
    /// Returns a client of the plugin at `unix:///path`.
    pub(super) fn new(config: &KmsConfig, metrics: Metrics) -> Self {
        let path = config.endpoint.strip_prefix("unix://").unwrap_or(&config.endpoint);
        // The authority that Kubernetes sends.
        let channel = connect_lazy(&Endpoint::from_static("http://localhost"), Target::Unix(path.into()));
        let timeout = config.timeout().unwrap_or_default();
        Self { channel, timeout, name: config.name.clone(), metrics }
    }

    async fn call<Q, A>(&self, method: &'static str, request: Q) -> Result<A, String>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        let call = async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_static(method);
            grpc.unary(Request::new(request), path, ProstCodec::<Q, A>::default()).await
        };
        let started = Instant::now();
        let answer = match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::deadline_exceeded("context deadline exceeded")),
        };
        let code = match &answer {
            Ok(_) => "OK".to_owned(),
            Err(status) => format!("{:?}", status.code()),
        };
        self.metrics.called(&self.name, method, &code, started.elapsed());
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| format!("rpc error: code = {code} desc = {}", status.message()))
    }

    pub(super) async fn status(&self) -> Result<StatusResponse, String> {
        self.call("/v2.KeyManagementService/Status", StatusRequest {}).await
    }

    pub(super) async fn encrypt(&self, request: EncryptRequest) -> Result<EncryptResponse, String> {
        self.call("/v2.KeyManagementService/Encrypt", request).await
    }

    pub(super) async fn decrypt(&self, request: DecryptRequest) -> Result<DecryptResponse, String> {
        self.call("/v2.KeyManagementService/Decrypt", request).await
    }
}
