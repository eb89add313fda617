//! The bearer token of this version: one, made at start, of which only the SHA-256 is kept.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use events::TenantId;
use rand::Rng as _;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::api::{Principal, Scope};

/// Every token starts so; secret scanners know it.
pub const TOKEN_PREFIX: &str = "lh_";
/// The tenant that the development token acts for.
pub const DEVELOPMENT_TENANT: TenantId = TenantId(Uuid::from_u128(1));

/// A new token: `lh_` and 256 random bits in hex. Shown once, never kept.
#[must_use]
pub fn generate() -> String {
    let mut bytes = [0_u8; 32];
    rand::rng().fill_bytes(&mut bytes);
    let mut token = String::from(TOKEN_PREFIX);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(token, "{byte:02x}");
    }
    token
}

/// The tokens that are accepted.
#[derive(Clone, Debug)]
pub struct Tokens {
    digest: [u8; 32],
    principal: Principal,
}

impl Tokens {
    /// Accepts exactly `token`, with every scope, for [`DEVELOPMENT_TENANT`].
    #[must_use]
    pub fn development(token: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        // Named by a part of its digest: it says which token acted, and nothing about the token.
        let actor = format!("token:{}", hex::encode(&digest[..8]));
        let scopes = BTreeSet::from([Scope::Run, Scope::Files, Scope::Audit, Scope::Operator]);
        Self { digest, principal: Principal { tenant: DEVELOPMENT_TENANT, actor, scopes } }
    }

    /// Who the token stands for. Takes the same time for every wrong token.
    #[must_use]
    pub fn authenticate(&self, token: &str) -> Option<&Principal> {
        let presented: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let difference = presented.iter().zip(self.digest).fold(0_u8, |sum, (a, b)| sum | (a ^ b));
        (std::hint::black_box(difference) == 0).then_some(&self.principal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_token_is_accepted() {
        let token = generate();
        assert_eq!(token.len(), 3 + 64);
        let tokens = Tokens::development(&token);
        assert_eq!(tokens.authenticate(&token).map(|p| p.tenant), Some(DEVELOPMENT_TENANT));
        for wrong in ["", "lh_", &token[1..], &format!("{token} "), &token.to_uppercase()] {
            assert!(tokens.authenticate(wrong).is_none());
        }
        assert_ne!(generate(), token);
    }

    #[test]
    fn an_actor_says_nothing_about_the_token() {
        let tokens = Tokens::development("lh_00");
        let actor = &tokens.authenticate("lh_00").unwrap().actor;
        assert!(actor.starts_with("token:") && !actor.contains("lh_00"));
    }
}
