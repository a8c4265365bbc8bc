//! The channelz service.

use std::{
    net::{IpAddr, SocketAddr},
    ops::Bound,
    sync::{
        Arc, Weak,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, UNIX_EPOCH},
};

use prost_types::Timestamp;
use tonic::{Request, Response, Status};

use super::{
    proto::{
        Address, ChannelTrace, GetChannelRequest, GetChannelResponse, GetServerRequest, GetServerResponse,
        GetServerSocketsRequest, GetServerSocketsResponse, GetServersRequest, GetServersResponse,
        GetSocketRequest, GetSocketResponse, GetSubchannelRequest, GetSubchannelResponse,
        GetTopChannelsRequest, GetTopChannelsResponse, Security, Server, ServerData, ServerRef, Socket,
        SocketData, SocketRef,
        address::{self, TcpIpAddress, UdsAddress},
        channelz_server,
        security::{self, Tls, tls::CipherSuite},
    },
    registry::{Channelz, Ends, OpenSocket, SERVER_ID, lock},
};

/// Largest and default page size.
const RESULTS_MAX: usize = 500;
const RESULTS_DEFAULT: usize = 100;

/// Implements `grpc.channelz.v1.Channelz`.
#[derive(Clone, Debug)]
pub(crate) struct ChannelzService(pub(crate) Arc<Channelz>);

fn limit(asked: i64) -> usize {
    match usize::try_from(asked) {
        Ok(0) | Err(_) => RESULTS_DEFAULT,
        Ok(asked) => asked.min(RESULTS_MAX),
    }
}

fn timestamp(at: &AtomicI64) -> Option<Timestamp> {
    let ms = u64::try_from(at.load(Relaxed)).ok().filter(|ms| *ms > 0)?;
    Some((UNIX_EPOCH + Duration::from_millis(ms)).into())
}

impl Channelz {
    fn server(&self) -> Server {
        let listening = lock(&self.listening);
        let listen_socket = listening
            .iter()
            .map(|(id, address)| SocketRef { socket_id: *id, name: address.to_string() })
            .collect();
        Server {
            r#ref: Some(ServerRef { server_id: SERVER_ID, name: self.name.clone() }),
            data: Some(ServerData {
                trace: Some(ChannelTrace {
                    num_events_logged: 0,
                    creation_timestamp: Some(self.started.into()),
                    events: Vec::new(),
                }),
                calls_started: self.calls.started.load(Relaxed),
                calls_succeeded: self.calls.succeeded.load(Relaxed),
                calls_failed: self.calls.failed.load(Relaxed),
                last_call_started_timestamp: timestamp(&self.calls.last_started_ms),
            }),
            listen_socket,
        }
    }

    fn sockets(&self, start: i64, limit: usize) -> GetServerSocketsResponse {
        let open = lock(&self.open);
        let mut rest = open.range((Bound::Included(start), Bound::Unbounded));
        let found = rest.by_ref().filter_map(|(_, socket)| Weak::upgrade(socket)).take(limit);
        let socket_ref = found.map(|socket| socket.reference()).collect();
        GetServerSocketsResponse { socket_ref, end: rest.next().is_none() }
    }

    fn listener(&self, id: i64) -> Option<Socket> {
        let address = lock(&self.listening).get(&id).cloned()?;
        let local = match &address {
            orlop_net::Address::Unix(path) => unix(&path.display().to_string()),
            orlop_net::Address::Tcp { host, port } => {
                tcp(SocketAddr::new(host.parse().unwrap_or(IpAddr::from([0; 16])), *port))
            }
        };
        Some(Socket {
            r#ref: Some(SocketRef { socket_id: id, name: address.to_string() }),
            data: Some(SocketData::default()),
            local: Some(local),
            ..Socket::default()
        })
    }
}

fn unix(path: &str) -> Address {
    Address { address: Some(address::Address::UdsAddress(UdsAddress { filename: path.to_owned() })) }
}

fn tcp(address: SocketAddr) -> Address {
    let ip_address = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let tcpip = TcpIpAddress { ip_address, port: i32::from(address.port()) };
    Address { address: Some(address::Address::TcpipAddress(tcpip)) }
}

impl OpenSocket {
    fn reference(&self) -> SocketRef {
        let name = match &self.ends {
            Ends::Unix { remote, .. } => remote.clone(),
            Ends::Tcp { remote, .. } => remote.to_string(),
        };
        SocketRef { socket_id: self.id, name }
    }

    fn to_socket(&self) -> Socket {
        let (local, remote) = match &self.ends {
            Ends::Unix { path, remote } => (unix(path), unix(remote)),
            Ends::Tcp { local, remote } => (tcp(*local), tcp(*remote)),
        };
        let security = self.security.as_ref().map(|security| Security {
            model: Some(security::Model::Tls(Tls {
                cipher_suite: Some(CipherSuite::StandardName(security.cipher_suite.clone())),
                local_certificate: Vec::new(),
                remote_certificate: security.remote_certificate.clone(),
            })),
        });
        Socket {
            r#ref: Some(self.reference()),
            data: Some(SocketData {
                streams_started: self.streams.started.load(Relaxed),
                streams_succeeded: self.streams.succeeded.load(Relaxed),
                streams_failed: self.streams.failed.load(Relaxed),
                messages_sent: self.sent.load(Relaxed),
                messages_received: self.received.load(Relaxed),
                last_remote_stream_created_timestamp: timestamp(&self.streams.last_started_ms),
                last_message_sent_timestamp: timestamp(&self.last_sent_ms),
                last_message_received_timestamp: timestamp(&self.last_received_ms),
                // hyper does not expose keepalives and flow-control windows.
                ..SocketData::default()
            }),
            local: Some(local),
            remote: Some(remote),
            security,
            remote_name: String::new(),
        }
    }
}

#[tonic::async_trait]
impl channelz_server::Channelz for ChannelzService {
    async fn get_top_channels(
        &self,
        _: Request<GetTopChannelsRequest>,
    ) -> Result<Response<GetTopChannelsResponse>, Status> {
        // Channels are a client's; this is a server only.
        Ok(Response::new(GetTopChannelsResponse { channel: Vec::new(), end: true }))
    }

    async fn get_servers(
        &self,
        request: Request<GetServersRequest>,
    ) -> Result<Response<GetServersResponse>, Status> {
        let wanted = request.into_inner().start_server_id <= SERVER_ID;
        let server = wanted.then(|| self.0.server()).into_iter().collect();
        Ok(Response::new(GetServersResponse { server, end: true }))
    }

    async fn get_server(
        &self,
        request: Request<GetServerRequest>,
    ) -> Result<Response<GetServerResponse>, Status> {
        self.check_server(request.into_inner().server_id)?;
        Ok(Response::new(GetServerResponse { server: Some(self.0.server()) }))
    }

    async fn get_server_sockets(
        &self,
        request: Request<GetServerSocketsRequest>,
    ) -> Result<Response<GetServerSocketsResponse>, Status> {
        let request = request.into_inner();
        self.check_server(request.server_id)?;
        Ok(Response::new(self.0.sockets(request.start_socket_id, limit(request.max_results))))
    }

    async fn get_channel(
        &self,
        request: Request<GetChannelRequest>,
    ) -> Result<Response<GetChannelResponse>, Status> {
        Err(Status::not_found(format!("no channel has id {}", request.into_inner().channel_id)))
    }

    async fn get_subchannel(
        &self,
        request: Request<GetSubchannelRequest>,
    ) -> Result<Response<GetSubchannelResponse>, Status> {
        Err(Status::not_found(format!("no subchannel has id {}", request.into_inner().subchannel_id)))
    }

    async fn get_socket(
        &self,
        request: Request<GetSocketRequest>,
    ) -> Result<Response<GetSocketResponse>, Status> {
        let id = request.into_inner().socket_id;
        let socket = self.0.socket(id).map(|socket| socket.to_socket()).or_else(|| self.0.listener(id));
        let socket = socket.ok_or_else(|| Status::not_found(format!("no socket has id {id}")))?;
        Ok(Response::new(GetSocketResponse { socket: Some(socket) }))
    }
}

impl ChannelzService {
    fn check_server(&self, server_id: i64) -> Result<(), Status> {
        if server_id == SERVER_ID {
            return Ok(());
        }
        Err(Status::not_found(format!("no server has id {server_id}")))
    }
}
