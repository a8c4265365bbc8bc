//! gRPC connections: the caller behind each, and its entry in channelz.

use std::{convert::Infallible, future::Future, sync::Arc};

use http::Request;
use hyper::{body::Incoming, service::service_fn};
use orlop_net::{
    AcceptOptions, ClientCertificate, Connection, HttpOptions, Listener, PeerAddress, TlsSession, accept,
    grpc, http::serve_connection,
};
use rustls::pki_types::CertificateDer;
use tonic::{Status, body::Body};
use tower::Service;

use super::{
    channelz::{Channelz, OpenSocket, Security},
    observe::Observe,
};
use crate::authorization::Caller;

/// The client of a connection, and the connection's entry in channelz.
#[derive(Clone, Debug)]
struct Peer {
    caller: Caller,
    socket: Arc<OpenSocket>,
}

/// Serves gRPC on a listener until shutdown.
pub(crate) async fn serve(
    listener: Listener,
    options: AcceptOptions,
    http: HttpOptions,
    service: Observe,
    channelz: Arc<Channelz>,
    shutdown: impl Future<Output = ()> + Send,
) {
    let http = Arc::new(http);
    accept(listener, options, shutdown, move |connection, watcher| {
        let (http, peer, service) = (http.clone(), peer(&connection, &channelz), service.clone());
        async move {
            let service = service_fn(move |request| call(service.clone(), peer.clone(), request));
            serve_connection(connection.stream, &http, service, watcher).await;
        }
    })
    .await;
}

/// Runs one request within the deadline that its client set.
async fn call(
    mut service: Observe,
    peer: Peer,
    request: Request<Incoming>,
) -> Result<http::Response<Body>, Infallible> {
    let deadline = grpc::timeout(request.headers());
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(peer.caller);
    request.extensions_mut().insert(peer.socket);
    let response = service.call(request);
    match deadline {
        None => response.await,
        Some(deadline) => match tokio::time::timeout(deadline, response).await {
            Ok(response) => response,
            Err(_) => Ok(Status::deadline_exceeded("context deadline exceeded").into_http()),
        },
    }
}

fn peer(connection: &Connection, channelz: &Arc<Channelz>) -> Peer {
    match &connection.peer {
        PeerAddress::Unix { path, credentials } => {
            let caller = match credentials {
                Some(peer) => Caller::Process { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() },
                None => Caller::Unknown,
            };
            let socket = channelz.open_unix(&path.display().to_string(), &caller);
            Peer { caller, socket }
        }
        PeerAddress::Tcp { local, remote } => {
            let certificate = connection.tls.as_ref().and_then(client_certificate);
            let security = connection.tls.as_ref().map(|session| Security {
                cipher_suite: session.cipher_suite.to_owned(),
                remote_certificate: certificate.map(|der| der.to_vec()).unwrap_or_default(),
            });
            let socket = channelz.open_tcp(*local, *remote, security);
            Peer {
                caller: Caller::Network { address: *remote, certificate: certificate.map(subject) },
                socket,
            }
        }
    }
}

fn client_certificate(session: &TlsSession) -> Option<&CertificateDer<'static>> {
    match &session.client {
        ClientCertificate::Verified(chain) => chain.first(),
        ClientCertificate::Absent | ClientCertificate::Presented(_) => None,
    }
}

/// Returns the subject of a verified certificate, for logs.
fn subject(certificate: &CertificateDer<'_>) -> Arc<str> {
    match x509_parser::parse_x509_certificate(certificate) {
        Ok((_, parsed)) => parsed.subject().to_string().into(),
        Err(_) => "certificate without a readable subject".into(),
    }
}
