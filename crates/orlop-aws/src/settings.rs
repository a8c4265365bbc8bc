//! Settings of the controllers.

use std::{collections::BTreeMap, time::Duration};

use orlop_api::labels::Selector;

/// Settings of the controllers. The defaults are ACK's where ACK has them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Region of objects that name none.
    pub region: String,
    /// Endpoint of all services, in place of AWS' own.
    pub endpoint: Option<String>,
    /// Endpoint of STS.
    pub identity_endpoint: Option<String>,
    /// Limit on each HTTP request.
    pub http_timeout: Duration,
    /// Factor on the call rates that AWS documents; 0 is no limit.
    pub rate_scale: f64,
    /// Kinds to reconcile; none is all.
    pub kinds: Vec<String>,
    /// Namespaces to watch; none is all.
    pub namespaces: Vec<String>,
    /// Keeps AWS resources when their objects are deleted.
    pub retain: bool,
    /// Resync period.
    pub resync: Duration,
    /// The same for single kinds.
    pub resync_of: BTreeMap<String, Duration>,
    /// Labels of the objects to reconcile.
    pub selector: Selector,
    /// Objects reconciled at once.
    pub workers: usize,
    /// The same for single kinds.
    pub workers_of: BTreeMap<String, usize>,
    /// Reconciles FieldExports.
    pub field_exports: bool,
    /// Features that may be turned off.
    pub gates: Gates,
    /// Tags of every resource, with placeholders such as `%K8S_NAMESPACE%`.
    pub tags: Vec<(String, String)>,
    /// Allows references to other namespaces.
    pub cross_namespace: bool,
    /// Cross-account roles by ConfigMap.
    pub carm: bool,
    /// Roles by IAMRoleSelector.
    pub role_selectors: bool,
    /// Namespace of the ConfigMaps.
    pub system_namespace: String,
    /// Group of the Bridge's kinds.
    pub bridge_group: String,
    /// Part of the tag with which the Bridge marks what it made, so that clusters in one account do not mistake each
    /// other's resources for their own.
    pub cluster_name: String,
    /// First wait after a transient failure. It doubles with each, six times at most.
    pub retry_base: Duration,
    /// Factor on every fixed wait, so that tests need not wait as long as AWS would.
    pub wait_scale: f64,
    /// Time after which a deletion that AWS does not let happen is given up, and what is left reported. 0 is never.
    pub delete_timeout: Duration,
    /// Variables `AWS_*` in place of those of the process.
    pub environment: Option<BTreeMap<String, String>>,
}

/// Feature gates, under ACK's names. Here all are on unless they are turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// `ResourceAdoption`: annotations `adoption-policy` and `adoption-fields`.
    pub adoption: bool,
    /// `ReadOnlyResources`: annotation `read-only`.
    pub read_only: bool,
    /// `TeamLevelCARM`: annotation `team-id` of namespaces.
    pub team_roles: bool,
    /// `ServiceLevelCARM`: keys `{service}.{id}` of role maps.
    pub service_roles: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self { adoption: true, read_only: true, team_roles: true, service_roles: true }
    }
}

impl Gates {
    /// Sets a gate by its name; false if there is none of this name.
    pub fn set(&mut self, name: &str, enabled: bool) -> bool {
        let gate = match name {
            "ResourceAdoption" => &mut self.adoption,
            "ReadOnlyResources" => &mut self.read_only,
            "TeamLevelCARM" => &mut self.team_roles,
            "ServiceLevelCARM" => &mut self.service_roles,
            _ => return false,
        };
        *gate = enabled;
        true
    }
}

impl Default for Settings {
    fn default() -> Self {
        let tag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Self {
            region: String::new(),
            endpoint: None,
            identity_endpoint: None,
            http_timeout: Duration::from_secs(60),
            rate_scale: 1.0,
            kinds: Vec::new(),
            namespaces: Vec::new(),
            retain: false,
            resync: Duration::from_secs(10 * 3600),
            resync_of: BTreeMap::new(),
            selector: Selector::everything(),
            workers: 16,
            workers_of: BTreeMap::new(),
            field_exports: true,
            gates: Gates::default(),
            tags: vec![
                tag("services.k8s.aws/controller-version", "%CONTROLLER_SERVICE%-%CONTROLLER_VERSION%"),
                tag("services.k8s.aws/namespace", "%K8S_NAMESPACE%"),
            ],
            cross_namespace: true,
            carm: true,
            role_selectors: false,
            system_namespace: "ack-system".to_owned(),
            bridge_group: "bridge.ack.tubi.internal".to_owned(),
            cluster_name: String::new(),
            retry_base: Duration::from_secs(15),
            wait_scale: 1.0,
            delete_timeout: Duration::from_secs(1800),
            environment: None,
        }
    }
}

impl Settings {
    /// Returns a fixed wait, scaled.
    pub(crate) fn wait(&self, time: Duration) -> Duration {
        time.mul_f64(self.wait_scale.max(0.0))
    }

    /// Returns the wait after a number of failures, with jitter so that objects do not come back together.
    pub(crate) fn backoff(&self, failures: u32) -> Duration {
        let wait = self.retry_base * 2_u32.pow(failures.min(6));
        wait.mul_f64(0.9 + 0.2 * rand::random::<f64>())
    }

    pub(crate) fn has_kind(&self, kind: &str) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|known| known == kind)
    }
}
