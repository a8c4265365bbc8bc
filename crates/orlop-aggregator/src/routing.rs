//! Services and EndpointSlices, and the address behind a port of a Service.

use std::collections::BTreeMap;

use rand::seq::SliceRandom;
use serde_json::Value;

/// Type of a Service, as far as it matters to routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceType {
    /// The default.
    ClusterIp,
    /// NodePort or LoadBalancer, which have a cluster IP too.
    Exposed,
    /// A name outside of the cluster.
    ExternalName(String),
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    kind: ServiceType,
    cluster_ip: String,
    family: String,
    /// Number and name of each port.
    ports: Vec<(u16, String)>,
}

impl Service {
    /// Reads an object.
    pub fn parse(object: &Value) -> Self {
        let spec = &object["spec"];
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        let kind = match spec["type"].as_str() {
            Some("ExternalName") => ServiceType::ExternalName(text("externalName")),
            Some("NodePort" | "LoadBalancer") => ServiceType::Exposed,
            _ => ServiceType::ClusterIp,
        };
        let ports = items(&spec["ports"])
            .filter_map(|port| Some((u16::try_from(port["port"].as_u64()?).ok()?, name(port))));
        Self {
            kind,
            cluster_ip: text("clusterIP"),
            family: spec["ipFamilies"][0].as_str().unwrap_or_default().to_owned(),
            ports: ports.collect(),
        }
    }

    /// Returns the name of a port.
    pub fn port_name(&self, port: u16) -> Option<&str> {
        self.ports.iter().find(|(number, _)| *number == port).map(|(_, name)| name.as_str())
    }

    /// Returns the type.
    pub fn kind(&self) -> &ServiceType {
        &self.kind
    }
}

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    family: String,
    /// Addresses of endpoints that are not unready.
    ready: Vec<String>,
    /// Name and number of each port.
    ports: Vec<(String, u16)>,
}

impl Slice {
    /// Reads an EndpointSlice.
    pub fn parse(object: &Value) -> Self {
        let ready = items(&object["endpoints"])
            .filter(|endpoint| endpoint["conditions"]["ready"] != false)
            .filter_map(|endpoint| endpoint["addresses"][0].as_str().map(str::to_owned));
        Self {
            family: object["addressType"].as_str().unwrap_or_default().to_owned(),
            ready: ready.collect(),
            ports: ports(&object["ports"]),
        }
    }

    /// Reads the subsets of Endpoints, for clusters without a controller that mirrors them.
    pub fn parse_endpoints(object: &Value) -> Vec<Self> {
        let subset = |subset: &Value| {
            let ready = items(&subset["addresses"]).filter_map(|address| address["ip"].as_str());
            Self {
                family: String::new(),
                ready: ready.map(str::to_owned).collect(),
                ports: ports(&subset["ports"]),
            }
        };
        items(&object["subsets"]).map(subset).collect()
    }

    /// Returns true if an endpoint has a port of a name.
    pub fn has_available(&self, port_name: &str) -> bool {
        !self.ready.is_empty() && self.port(port_name).is_some()
    }

    fn port(&self, name: &str) -> Option<u16> {
        self.ports.iter().find(|(known, _)| known == name).map(|(_, number)| *number)
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn name(port: &Value) -> String {
    port["name"].as_str().unwrap_or_default().to_owned()
}

fn ports(value: &Value) -> Vec<(String, u16)> {
    let port = |port: &Value| Some((name(port), u16::try_from(port["port"].as_u64()?).ok()?));
    items(value).filter_map(port).collect()
}

/// A Service and its endpoints, as the server knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceState {
    /// The Service, if it exists.
    pub service: Option<Service>,
    /// EndpointSlices by name.
    pub slices: BTreeMap<String, Slice>,
    /// Subsets of the Endpoints of the same name.
    pub endpoints: Vec<Slice>,
}

impl ServiceState {
    /// Returns the EndpointSlices; the subsets of Endpoints if there are none.
    pub fn slices(&self) -> Vec<&Slice> {
        match self.slices.is_empty() {
            true => self.endpoints.iter().collect(),
            false => self.slices.values().collect(),
        }
    }

    /// Returns the host and port behind a port of the Service: an endpoint at random, or the cluster IP where no
    /// endpoints are known. Errors are worded as Kubernetes words them.
    ///
    /// Endpoints come first, since the machine of an API server often has no service network.
    pub fn resolve(&self, name: &str, port: u16) -> Result<(String, u16), String> {
        let service = self.service.as_ref().ok_or_else(|| format!("service {name:?} not found"))?;
        if let ServiceType::ExternalName(host) = &service.kind {
            return Ok((host.clone(), port));
        }
        let Some(port_name) = service.port_name(port) else {
            return Err(format!("no service port {port} found for service {name:?}"));
        };
        let mut slices = self.slices();
        let mut rng = rand::rng();
        slices.shuffle(&mut rng);
        // Stable: slices of the Service's first family come first.
        slices.sort_by_key(|slice| slice.family != service.family);
        for slice in &slices {
            if let (Some(port), Some(address)) =
                (slice.port(port_name), rand::seq::IndexedRandom::choose(slice.ready.as_slice(), &mut rng))
            {
                return Ok((address.clone(), port));
            }
        }
        match service.cluster_ip.as_str() {
            address if slices.is_empty() && !matches!(address, "" | "None") => Ok((address.to_owned(), port)),
            _ => Err(format!("no endpoints available for service {name:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(service: &Value, slices: &[Value]) -> ServiceState {
        let slices = slices.iter().enumerate().map(|(index, slice)| (index.to_string(), Slice::parse(slice)));
        ServiceState {
            service: Some(Service::parse(service)),
            slices: slices.collect(),
            ..ServiceState::default()
        }
    }

    #[test]
    fn endpoint_comes_before_the_cluster_ip() {
        let service = json!({"spec": {"clusterIP": "10.0.0.9", "ipFamilies": ["IPv4"],
            "ports": [{"port": 443, "name": "https"}, {"port": 80}]}});
        let v6 = json!({"addressType": "IPv6", "endpoints": [{"addresses": ["fd00::1"]}],
            "ports": [{"name": "https", "port": 8443}]});
        let v4 = json!({"addressType": "IPv4", "endpoints": [
                {"addresses": ["10.1.0.1"], "conditions": {"ready": false}},
                {"addresses": ["10.1.0.2"], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": 9443}]});
        let found = state(&service, &[v6.clone(), v4]);
        assert_eq!(found.resolve("s", 443), Ok(("10.1.0.2".to_owned(), 9443)));
        assert_eq!(found.resolve("s", 80).unwrap_err(), "no endpoints available for service \"s\"");
        assert_eq!(found.resolve("s", 1).unwrap_err(), "no service port 1 found for service \"s\"");
        assert_eq!(state(&service, &[v6]).resolve("s", 443), Ok(("fd00::1".to_owned(), 8443)));
        assert_eq!(state(&service, &[]).resolve("s", 443), Ok(("10.0.0.9".to_owned(), 443)));
        let headless = json!({"spec": {"clusterIP": "None", "ports": [{"port": 443}]}});
        assert!(state(&headless, &[]).resolve("s", 443).is_err());
    }

    #[test]
    fn external_names_and_endpoints_are_routes_too() {
        let external = json!({"spec": {"type": "ExternalName", "externalName": "api.example.org"}});
        assert_eq!(state(&external, &[]).resolve("s", 443), Ok(("api.example.org".to_owned(), 443)));
        assert_eq!(ServiceState::default().resolve("s", 1).unwrap_err(), "service \"s\" not found");
        let service = json!({"spec": {"clusterIP": "10.0.0.9", "ports": [{"port": 443}]}});
        let endpoints = json!({"subsets": [{"addresses": [{"ip": "10.1.0.3"}], "ports": [{"port": 8443}]}]});
        let mut found = state(&service, &[]);
        found.endpoints = Slice::parse_endpoints(&endpoints);
        assert_eq!(found.resolve("s", 443), Ok(("10.1.0.3".to_owned(), 8443)));
    }
}
