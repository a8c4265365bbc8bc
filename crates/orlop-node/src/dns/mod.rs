//! The cluster's DNS: names of services, and the machine's own servers for every other name.

mod message;
mod records;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::Semaphore,
    time::timeout,
};

use self::{
    message::{Answer, Code, MESSAGE_BYTES_MAX, Query, refusal},
    records::View,
};
use crate::services::{Services, Slices};

/// Queries and connections in work at a time.
const IN_WORK_MAX: usize = 256;
/// Limit on the answer of another server, and on a connection's next query.
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(10);
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
const PORT: u16 = 53;

/// A DNS server with its sockets.
#[derive(Debug)]
pub(crate) struct Server {
    udp: Arc<UdpSocket>,
    tcp: TcpListener,
    resolver: Arc<Resolver>,
    in_work: Arc<Semaphore>,
}

/// Answers queries.
#[derive(Debug)]
struct Resolver {
    zone: String,
    services: Services,
    slices: Slices,
    /// Servers of the machine.
    upstream: Vec<SocketAddr>,
}

impl Server {
    /// Listens on an address.
    pub(crate) async fn bind(
        address: SocketAddr,
        zone: String,
        services: Services,
        slices: Slices,
    ) -> io::Result<Self> {
        let udp = Arc::new(UdpSocket::bind(address).await?);
        let tcp = TcpListener::bind(udp.local_addr()?).await?;
        let upstream = machine_servers(address.ip());
        let resolver = Arc::new(Resolver { zone, services, slices, upstream });
        Ok(Self { udp, tcp, resolver, in_work: Arc::new(Semaphore::new(IN_WORK_MAX)) })
    }

    /// Answers for ever.
    pub(crate) async fn run(self) {
        tokio::join!(self.serve_udp(), self.serve_tcp());
    }

    async fn serve_udp(&self) {
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        loop {
            let Ok((length, client)) = self.udp.recv_from(&mut buffer).await else {
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            };
            let Ok(permit) = self.in_work.clone().acquire_owned().await else { return };
            let (resolver, udp, query) = (self.resolver.clone(), self.udp.clone(), buffer[..length].to_vec());
            tokio::spawn(async move {
                if let Some(answer) = resolver.resolve(&query, true).await {
                    let _ = udp.send_to(&answer, client).await;
                }
                drop(permit);
            });
        }
    }

    async fn serve_tcp(&self) {
        loop {
            let Ok(permit) = self.in_work.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = self.tcp.accept().await else {
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            };
            let resolver = self.resolver.clone();
            tokio::spawn(async move {
                let _ = resolver.converse(stream).await;
                drop(permit);
            });
        }
    }
}

impl Resolver {
    /// Answers the queries of a connection, each with its length before it.
    async fn converse(&self, mut stream: TcpStream) -> io::Result<()> {
        while let Some(query) = timeout(IDLE, read_message(&mut stream)).await?? {
            let Some(answer) = self.resolve(&query, false).await else { return Ok(()) };
            timeout(IDLE, write_message(&mut stream, &answer)).await??;
        }
        Ok(())
    }

    /// Returns the answer to a query. `None` if there is none.
    async fn resolve(&self, bytes: &[u8], is_udp: bool) -> Option<Vec<u8>> {
        let query = match Query::parse(bytes) {
            Ok(query) => query,
            Err(refused) => return refused.map(|(id, code)| refusal(id, code)),
        };
        let known = {
            let (services, slices) = (self.services.all(), self.slices.all());
            let view = View { zone: &self.zone, services: &services, slices: &slices };
            view.answer(&query.name, query.kind)
        };
        if let Some(answer) = known {
            return Some(query.answer(&answer, &self.zone, is_udp));
        }
        for server in &self.upstream {
            let asked =
                async { if is_udp { ask_udp(*server, bytes).await } else { ask_tcp(*server, bytes).await } };
            if let Ok(Ok(answer)) = timeout(UPSTREAM_TIMEOUT, asked).await {
                return Some(answer);
            }
        }
        let failure = Answer { code: Code::ServerFailure, records: Vec::new(), additional: Vec::new() };
        Some(query.answer(&failure, &self.zone, is_udp))
    }
}

async fn ask_udp(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    socket.connect(server).await?;
    socket.send(query).await?;
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // The id of the query: anything else is somebody else's.
        if buffer.get(..2) == query.get(..2) {
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
}

async fn ask_tcp(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    write_message(&mut stream, query).await?;
    read_message(&mut stream).await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

async fn read_message(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 2];
    match stream.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).await?;
    Ok(Some(message))
}

async fn write_message(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], message].concat()).await
}

/// Returns the name servers of the machine, without this one.
fn machine_servers(own: IpAddr) -> Vec<SocketAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|address| address.trim().parse::<IpAddr>().ok())
        .filter(|address| address.is_ipv4() && *address != own)
        .map(|address| SocketAddr::new(address, PORT))
        .collect()
}
