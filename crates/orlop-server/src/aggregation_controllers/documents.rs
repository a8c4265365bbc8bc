//! Fetches the discovery and OpenAPI documents of one extension API server.

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::{StatusCode, header};
use orlop_aggregator::{
    ApiService,
    client::{Answer, Client, Fetch, Unreachable},
    discovery::{self, Resources},
    open_api::{Spec, parse_index},
};
use orlop_api::user::UserInfo;
use sha2::{Digest, Sha256};

use crate::aggregation::{Backend, Documents, OpenApiV3, VersionDocuments};

/// Limits on discovery documents.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
const DISCOVERY_BYTES_MAX: usize = 8 << 20;
/// Limits on OpenAPI documents, which are long.
const OPEN_API_TIMEOUT: Duration = Duration::from_secs(60);
const OPEN_API_BYTES_MAX: usize = 32 << 20;

/// Fetches documents, and remembers their tags.
#[derive(Debug, Default)]
pub(super) struct Fetcher {
    discovery: Option<(String, Resources)>,
    open_api: Option<(String, Arc<Spec>)>,
    /// Group versions that were fetched last.
    fetched: Vec<String>,
}

/// A failure, for the log.
type Failure = String;

impl Fetcher {
    /// Returns true if a group version has never been fetched.
    pub(super) fn is_missing(&self, services: &[Arc<ApiService>]) -> bool {
        services.iter().any(|service| !self.fetched.contains(&service.name))
    }

    /// Fetches the documents of all group versions. Returns false if something failed and is worth another attempt
    /// soon.
    pub(super) async fn fetch(&mut self, backend: &Backend, services: &[Arc<ApiService>]) -> bool {
        self.fetched = services.iter().map(|service| service.name.clone()).collect();
        let client = backend.client();
        let mut documents: HashMap<String, VersionDocuments> = HashMap::new();
        let known = backend.documents();
        for service in services {
            let key = key(service);
            let before = known.0.get(&key).cloned().unwrap_or_default();
            documents.insert(key, before);
        }
        let mut is_success = true;
        let address = match backend.resolve().await {
            Ok(address) => address,
            Err(_) => {
                documents.values_mut().for_each(VersionDocuments::lose);
                backend.set_documents(Documents(documents));
                // The Service is followed: nothing changes until it does.
                return true;
            }
        };
        let server = Server { client: &client, address: &address };
        for service in services {
            let found = self.resources(&server, service).await;
            if let Err(error) = &found {
                tracing::warn!(error, name = service.name, "cannot fetch discovery");
                is_success = false;
            }
            if let Some(documents) = documents.get_mut(&key(service)) {
                match found {
                    Ok(resources) => (documents.resources, documents.is_stale) = (Arc::new(resources), false),
                    Err(_) => documents.lose(),
                }
            }
        }
        // Clients need discovery first, and OpenAPI takes longer.
        backend.set_documents(Documents(documents.clone()));
        if is_success {
            match self.open_api(&server, services, &mut documents).await {
                Ok(()) => backend.set_documents(Documents(documents)),
                Err(error) => {
                    tracing::warn!(error, service = backend.key.name, "cannot fetch OpenAPI");
                    is_success = false;
                }
            }
        }
        is_success
    }

    /// Returns the resources of a group version: from the aggregated document, which is fetched once for all, or from
    /// its own.
    async fn resources(
        &mut self,
        server: &Server<'_>,
        service: &ApiService,
    ) -> Result<Vec<discovery::Resource>, Failure> {
        let key = (service.group.clone(), service.version.clone());
        let user = UserInfo {
            name: "system:kube-aggregator".to_owned(),
            groups: vec!["system:masters".to_owned()],
            ..UserInfo::default()
        };
        let etag = self.discovery.as_ref().map_or("", |(etag, _)| etag.as_str()).to_owned();
        let fetch = Fetch {
            path: "/apis",
            user: &user,
            accept: discovery::AGGREGATED,
            etag: &etag,
            timeout: DISCOVERY_TIMEOUT,
            bytes_max: DISCOVERY_BYTES_MAX,
        };
        let answer = server.get(&fetch).await?;
        match answer.status {
            StatusCode::NOT_MODIFIED if !etag.is_empty() => {}
            StatusCode::SERVICE_UNAVAILABLE => {
                return Err("non-success response code: 503".to_owned());
            }
            StatusCode::OK if discovery::is_aggregated(&answer.headers) => {
                let parsed = discovery::parse_aggregated(&answer.body, |_, _| true);
                let parsed = parsed.map_err(|error| error.to_string())?;
                self.discovery = Some((etag_of(&answer), parsed));
            }
            _ => {
                let path = service.path();
                let fetch = Fetch { path: &path, accept: "application/json", etag: "", ..fetch };
                let answer = server.get(&fetch).await?;
                if answer.status != StatusCode::OK {
                    return Err(format!("{path} answered {}", answer.status.as_u16()));
                }
                let parsed = discovery::parse_legacy(&answer.body, &service.group, &service.version);
                return parsed.map_err(|error| error.to_string());
            }
        }
        // A server that does not list the group version has no resources of it.
        Ok(self.discovery.as_ref().and_then(|(_, all)| all.get(&key)).cloned().unwrap_or_default())
    }

    /// Fetches the OpenAPI documents.
    async fn open_api(
        &mut self,
        server: &Server<'_>,
        services: &[Arc<ApiService>],
        documents: &mut HashMap<String, VersionDocuments>,
    ) -> Result<(), Failure> {
        let user = UserInfo::authenticated("system:aggregator", []);
        let etag = self.open_api.as_ref().map_or("", |(etag, _)| etag.as_str()).to_owned();
        let fetch = Fetch {
            path: "/openapi/v2",
            user: &user,
            accept: "application/json",
            etag: &etag,
            timeout: OPEN_API_TIMEOUT,
            bytes_max: OPEN_API_BYTES_MAX,
        };
        let answer = server.get(&fetch).await?;
        match answer.status {
            StatusCode::NOT_MODIFIED if !etag.is_empty() => {}
            StatusCode::NOT_FOUND => self.open_api = None,
            StatusCode::OK => {
                let spec = Spec::parse(&answer.body).map_err(|error| error.to_string())?;
                self.open_api = Some((etag_of(&answer), Arc::new(spec)));
            }
            other => return Err(format!("/openapi/v2 answered {}", other.as_u16())),
        }
        let index = server.get(&Fetch { path: "/openapi/v3", etag: "", ..fetch }).await?;
        let index = match index.status {
            StatusCode::OK => {
                let wanted = |path: &str| path.starts_with("apis/");
                Some(parse_index(&index.body, wanted).map_err(|error| error.to_string())?)
            }
            StatusCode::NOT_FOUND => None,
            other => return Err(format!("/openapi/v3 answered {}", other.as_u16())),
        };
        for service in services {
            let Some(documents) = documents.get_mut(&key(service)) else { continue };
            documents.spec = self.open_api.as_ref().map(|(etag, spec)| {
                let part = spec.below(&format!("{}/", service.path()));
                (Arc::new(part), Arc::from(etag.as_str()))
            });
            let path = service.path();
            documents.v3 = match &index {
                Some(index) => index
                    .get(path.trim_start_matches('/'))
                    .map_or(OpenApiV3::Unknown, |url| OpenApiV3::Served(url.as_str().into())),
                None if documents.spec.is_some() => OpenApiV3::Converted,
                None => OpenApiV3::Unknown,
            };
        }
        Ok(())
    }
}

impl VersionDocuments {
    /// Forgets the resources of a server that cannot be asked. Clients are told that there may be some.
    fn lose(&mut self) {
        (self.resources, self.is_stale) = (Arc::default(), true);
    }
}

/// An address of the server.
struct Server<'a> {
    client: &'a Client,
    address: &'a (String, u16),
}

impl Server<'_> {
    async fn get(&self, fetch: &Fetch<'_>) -> Result<Answer, Failure> {
        let answer = self.client.fetch(self.address, fetch).await;
        answer.map_err(|Unreachable(why)| format!("{}: {why}", fetch.path))
    }
}

fn key(service: &ApiService) -> String {
    format!("{}/{}", service.group, service.version)
}

/// Returns the ETag of a document, or its hash where the server sends none.
fn etag_of(answer: &Answer) -> String {
    let sent = answer.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok());
    sent.filter(|etag| !etag.is_empty()).map_or_else(
        || {
            let digest = Sha256::digest(&answer.body);
            format!("\"orlop-{}\"", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        },
        str::to_owned,
    )
}
