//! Routes requests by service: device kinds, then health, reflection and channelz.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use tonic::body::Body;
use tonic_health::{
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};
use tower::Service;

use super::channelz::{Channelz, ChannelzService, proto};
use super::config::StartError;
use crate::{kinds::Kind, service::DeviceService};

/// The services of a listener.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    kinds: Arc<HashMap<&'static str, DeviceService>>,
    rest: tonic::service::Routes,
}

impl Routes {
    /// Routes to all services.
    pub(crate) fn new(
        kinds: HashMap<&'static str, DeviceService>,
        described: &[&'static Kind],
        health: &HealthReporter,
        channelz: &Arc<Channelz>,
    ) -> Result<Self, StartError> {
        let mut sets: Vec<&[u8]> = described.iter().map(|kind| kind.descriptors).collect();
        sets.extend([tonic_health::pb::FILE_DESCRIPTOR_SET, proto::FILE_DESCRIPTOR_SET]);
        let reflection = || {
            let builder = tonic_reflection::server::Builder::configure();
            sets.iter().fold(builder, |builder, set| builder.register_encoded_file_descriptor_set(set))
        };
        let bad = |error: tonic_reflection::server::Error| StartError::Reflection(error.to_string());
        let rest = tonic::service::Routes::new(HealthServer::new(HealthService::from_health_reporter(
            health.clone(),
        )))
        .add_service(reflection().build_v1().map_err(bad)?)
        .add_service(reflection().build_v1alpha().map_err(bad)?)
        .add_service(proto::channelz_server::ChannelzServer::new(ChannelzService(channelz.clone())))
        .prepare();
        Ok(Self { kinds: Arc::new(kinds), rest })
    }

    /// Routes to all services but the device kinds. The descriptors for reflection, the larger part, are shared.
    pub(crate) fn without_kinds(&self) -> Self {
        Self { kinds: Arc::default(), rest: self.rest.clone() }
    }
}

impl Service<Request<Body>> for Routes {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let service = request.uri().path().split('/').nth(1).unwrap_or_default();
        match self.kinds.get(service) {
            Some(kind) => kind.clone().call(request),
            None => Box::pin(self.rest.call(request)),
        }
    }
}
