//! Phase DNS: the record that leads clients to the domain name.

use super::{domain, domain_name};
use crate::{
    bridge::{
        records::{Site, clean_site, run_site},
        step::{Cleaned, Step},
        work::{Work, missing_field},
    },
    client::Result,
};

pub(super) async fn run(work: &mut Work<'_>) -> Result<Step> {
    let endpoint =
        work.status("domainNameEndpoint").ok_or_else(|| missing_field("domainNameEndpoint"))?.to_owned();
    let alias_zone = work.status("hostedZoneId").map(str::to_owned);
    let suffix = format!(".execute-api.{}.amazonaws.com", work.aws.region);
    let site = Site {
        name: domain(work),
        target: endpoint,
        alias_zone,
        // An endpoint of an earlier object of this name.
        is_stale: Box::new(move |value| value.starts_with("d-") && value.ends_with(&suffix)),
    };
    run_site(work, site).await
}

/// The record is the one in status, or one that leads to the domain name: a killed controller may have
/// written it without living to note it.
pub(super) async fn clean(work: &mut Work<'_>) -> Result<Cleaned> {
    let domain = domain(work);
    let found = domain_name::read(work, &domain).await?.filter(|found| domain_name::is_ours(work, found));
    let endpoint = found
        .as_ref()
        .and_then(|found| found["domainNameConfigurations"][0]["apiGatewayDomainName"].as_str());
    let targets = endpoint.into_iter().chain(work.status("dnsRecord.value")).map(str::to_owned).collect();
    clean_site(work, &domain, targets).await
}
